//! NVML's error codes.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::nvmlReturn_t;

/// An error code of NVML (`nvmlReturn_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvml) struct Code(nvmlReturn_t);

impl Code {
    pub(in crate::nvml) const NOT_SUPPORTED: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED);
    pub(in crate::nvml) const NO_PERMISSION: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION);
    pub(in crate::nvml) const INSUFFICIENT_SIZE: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    pub(in crate::nvml) const FUNCTION_NOT_FOUND: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND);
    pub(in crate::nvml) const ARGUMENT_VERSION: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    pub(in crate::nvml) const DRIVER_NOT_LOADED: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED);
    pub(in crate::nvml) const VERSION_MISMATCH: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH);
    /// Not a code of NVML: its text is not UTF-8, so the wrapper does not return it.
    const NO_TEXT: Code = Code(nvmlReturn_t::MAX);

    /// Whether the GPU fell off the bus, needs a reset, or is gone.
    pub(in crate::nvml) fn is_lost(self) -> bool {
        matches!(
            self.0,
            nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST
                | nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED
                | nvml::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND
        )
    }

    /// Returns what is shown in place of a text that could not be read: nothing, or why it cannot be shown.
    pub(in crate::nvml) fn placeholder(self) -> String {
        match self {
            Code::NO_TEXT => self.text(),
            _ => String::new(),
        }
    }

    /// Returns the message of `nvmlErrorString` (driver 580), which users can search for. The messages are copied here
    /// because the wrapper does not query them, and a library that failed to initialise cannot be queried.
    pub(in crate::nvml) fn text(self) -> String {
        let words = match self.0 {
            nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED => "Uninitialized",
            nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT => "Invalid Argument",
            nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED => "Not Supported",
            nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => "Insufficient Permissions",
            nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND => "Not Found",
            nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => "Insufficient Size",
            nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_POWER => "Insufficient External Power",
            nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => "Driver Not Loaded",
            nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT => "Timeout",
            nvml::nvmlReturn_enum_NVML_ERROR_IRQ_ISSUE => "Interrupt Request Issue",
            nvml::nvmlReturn_enum_NVML_ERROR_LIBRARY_NOT_FOUND => "NVML Shared Library Not Found",
            nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND => "the driver's library lacks this function",
            nvml::nvmlReturn_enum_NVML_ERROR_CORRUPTED_INFOROM => "Corrupted infoROM",
            nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => "GPU is lost",
            nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => "GPU requires reset",
            nvml::nvmlReturn_enum_NVML_ERROR_OPERATING_SYSTEM => "Blocked by the operating system",
            nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH => "Driver/library version mismatch",
            nvml::nvmlReturn_enum_NVML_ERROR_IN_USE => "In use by another client",
            nvml::nvmlReturn_enum_NVML_ERROR_MEMORY => "Insufficient Memory",
            nvml::nvmlReturn_enum_NVML_ERROR_NO_DATA => "No data",
            nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES => "Insufficient Resources",
            nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH => "Argument version mismatch",
            nvml::nvmlReturn_enum_NVML_ERROR_NOT_READY => "Not ready",
            nvml::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND => "GPU not found",
            nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN => "Unknown Error",
            _ if self == Code::NO_TEXT => "the driver's text is not UTF-8",
            code => return format!("Unknown Error {code}"),
        };
        words.into()
    }
}

impl From<NvmlError> for Code {
    fn from(error: NvmlError) -> Code {
        match error {
            NvmlError::FailedToLoadSymbol(_) => Code::FUNCTION_NOT_FOUND,
            NvmlError::Utf8Error(_) => Code::NO_TEXT,
            other => Code(other.into()),
        }
    }
}

/// Converts the return code of a direct call.
pub(super) fn check(code: nvmlReturn_t) -> Result<(), Code> {
    match code {
        nvml::nvmlReturn_enum_NVML_SUCCESS => Ok(()),
        code => Err(Code(code)),
    }
}
