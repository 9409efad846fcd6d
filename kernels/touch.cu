// Touches one word in each `step` words of managed memory, one after the other: where the pages are on the host, each
// touch is a page fault that moves some of them here. Word i holds `word`: report[0] grows by the words that do not.
extern "C" __global__ void gpumem_touch(const unsigned int *words, unsigned int touches, unsigned int step,
                                        unsigned int word, unsigned long long *report) {
    for (unsigned int i = 0; i < touches; ++i) {
        // Volatile, so that no touch begins before the last one has ended.
        if (*(const volatile unsigned int *)(words + (unsigned long long)i * step) != word) {
            report[0] += 1;
        }
    }
}
