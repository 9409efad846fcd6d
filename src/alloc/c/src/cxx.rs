//! What C++ passes by value, in the layouts of the Itanium ABI and GNU's libstdc++, which PyTorch's Linux builds use.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};

use crate::boundary::enter;
use crate::library::Library;

/// What is before the functions in the table of a class: how far an object is from its beginning, and its type.
pub(crate) const BEFORE: usize = 2;

/// `std::type_info`: the functions of such an object, and the type's name. Libraries have one each of some types, which are told from one
/// another by their names.
#[repr(C)]
pub(crate) struct TypeInfo {
    pub(crate) functions: usize,
    pub(crate) name: usize,
}

/// `__cxxabiv1::__si_class_type_info`: of a class that has one base, where it begins.
#[repr(C)]
pub(crate) struct OneBase {
    pub(crate) class: TypeInfo,
    pub(crate) base: usize,
}

/// The mangled name of a type.
///
/// # Safety
///
/// It is null, or the address of a `std::type_info` that stays.
pub(crate) unsafe fn type_name(type_info: usize) -> Option<&'static CStr> {
    let type_info = NonNull::new(std::ptr::with_exposed_provenance_mut::<TypeInfo>(type_info))?;
    // SAFETY: by this function's contract.
    let name = NonNull::new(std::ptr::with_exposed_provenance_mut(
        unsafe { type_info.as_ref() }.name,
    ))?;
    // SAFETY: such an object's name is a string that ends in a zero byte.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) })
}

type New = unsafe extern "C-unwind" fn(usize) -> NonNull<c_void>;
type Append = unsafe extern "C-unwind" fn(*mut CxxString, *const c_char, usize) -> *mut CxxString;
type DropString = unsafe extern "C-unwind" fn(*mut CxxString);

/// Functions of C++'s library.
pub(crate) struct Cxx {
    /// `operator new(size_t)`
    new: New,
    /// `std::string::_M_append(const char*, size_t)`
    append: Append,
    /// `std::string::~string()`
    drop_string: DropString,
}

impl Cxx {
    pub(crate) fn find(library: &Library) -> Option<Cxx> {
        // SAFETY: what has such a name is a function of the type that its field has.
        unsafe {
            Some(Cxx {
                // What it gives is deleted by the library's code.
                new: library.function_as_bound(c"_Znwm")?,
                append: library.function(c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_appendEPKcm")?,
                drop_string: library.function(c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev")?,
            })
        }
    }
}

/// `std::string`: text that is shorter than `local` is there, and `data` points to it.
#[repr(C)]
pub(crate) struct CxxString {
    data: *mut c_char,
    length: usize,
    local: [c_char; 16],
}

impl CxxString {
    /// Makes one.
    ///
    /// # Safety
    ///
    /// `to` is room for one.
    pub(crate) unsafe fn write(cxx: &Cxx, to: *mut CxxString, text: &[u8]) {
        // SAFETY: the caller's contract. What is written is an empty string where it is, to which C++ appends.
        unsafe {
            to.write(CxxString {
                data: (&raw mut (*to).local).cast(),
                length: 0,
                local: [0; 16],
            });
            (cxx.append)(to, text.as_ptr().cast(), text.len());
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: a string of C++ has so many there.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.length) }
    }

    /// Ends it.
    ///
    /// # Safety
    ///
    /// It was made and not ended.
    pub(crate) unsafe fn end(cxx: &Cxx, text: *mut CxxString) {
        // SAFETY: the caller's contract.
        unsafe { (cxx.drop_string)(text) };
    }
}

/// `std::vector`
#[repr(C)]
pub(crate) struct Vector<T> {
    begin: *mut T,
    end: *mut T,
    end_of_storage: *mut T,
}

impl<T> Vector<T> {
    pub(crate) const NONE: Vector<T> = Vector {
        begin: null_mut(),
        end: null_mut(),
        end_of_storage: null_mut(),
    };

    /// Of so many items. C++ gives its memory back.
    pub(crate) fn of(cxx: &Cxx, items: impl ExactSizeIterator<Item = T>) -> Vector<T> {
        let len = items.len();
        if len == 0 {
            return Vector::NONE;
        }
        // SAFETY: room for so many, aligned for anything. It throws where there is none.
        let begin = unsafe { (cxx.new)(len * size_of::<T>()) }.cast::<T>().as_ptr();
        for (at, item) in items.take(len).enumerate() {
            // SAFETY: within the room.
            unsafe { begin.add(at).write(item) };
        }
        let end = begin.wrapping_add(len);
        Vector {
            begin,
            end,
            end_of_storage: end,
        }
    }
}

/// `std::shared_ptr` of a value of ours, or of what that has.
#[repr(C)]
pub(crate) struct SharedPtr<T> {
    pub(crate) object: *const T,
    counted: *const c_void,
}

impl<T> SharedPtr<T> {
    pub(crate) const NULL: SharedPtr<T> = SharedPtr {
        object: null(),
        counted: null(),
    };

    /// To what `object` finds in a value, which goes with the last user.
    pub(crate) fn new<V: 'static>(value: V, object: impl FnOnce(&V) -> *const T) -> SharedPtr<T> {
        let counted = Box::into_raw(Box::new(Counted {
            functions: &raw const Counted::<V>::TABLE.functions,
            uses: 1,
            weak: 1,
            value: Some(value),
        }));
        // SAFETY: made just now, at the place that it keeps.
        let value = unsafe { &(*counted).value };
        SharedPtr {
            object: value.as_ref().map_or(null(), object),
            counted: counted.cast_const().cast(),
        }
    }
}

/// A class derived from `std::_Sp_counted_base`, which counts users: of the value, and of this.
#[repr(C)]
struct Counted<V: 'static> {
    functions: *const CountedFunctions<V>,
    uses: c_int,
    weak: c_int,
    value: Option<V>,
}

/// Its functions.
#[repr(C)]
struct CountedFunctions<V: 'static> {
    destructors: [extern "C" fn(*mut Counted<V>); 2],
    dispose: extern "C" fn(*mut Counted<V>),
    destroy: extern "C" fn(*mut Counted<V>),
    get_deleter: extern "C" fn(*mut Counted<V>, *const c_void) -> *mut c_void,
}

/// The table, which nobody asks for its type.
#[repr(C)]
struct CountedTable<V: 'static> {
    before: [usize; BEFORE],
    functions: CountedFunctions<V>,
}

impl<V: 'static> Counted<V> {
    const TABLE: &CountedTable<V> = &CountedTable {
        before: [0; BEFORE],
        functions: CountedFunctions {
            destructors: [Counted::destroy_nothing; 2],
            dispose: Counted::dispose,
            destroy: Counted::destroy,
            get_deleter: Counted::get_deleter,
        },
    };

    /// `destroy` is what C++ calls.
    extern "C" fn destroy_nothing(_counted: *mut Counted<V>) {}

    /// The last user of the value is gone.
    extern "C" fn dispose(counted: *mut Counted<V>) {
        enter("shared_ptr", (), || {
            // SAFETY: made by `SharedPtr::new`; nobody has the value any more.
            drop(unsafe { (*counted).value.take() });
            Ok(())
        });
    }

    /// And the last one of this.
    extern "C" fn destroy(counted: *mut Counted<V>) {
        // SAFETY: made by `SharedPtr::new`; nobody has it any more.
        drop(unsafe { Box::from_raw(counted) });
    }

    extern "C" fn get_deleter(_counted: *mut Counted<V>, _type: *const c_void) -> *mut c_void {
        null_mut()
    }
}
