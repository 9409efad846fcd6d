// The 64-bit word that belongs at `index` of a range filled with `seed`: SplitMix64's output function, so that a word
// found at the wrong index, or of another range's seed, differs in about half its bits.
// The host has the same function in demo/src/pattern.rs; a test of the GPU suite compares the two.
static __device__ __forceinline__ unsigned long long pattern(unsigned long long seed, unsigned long long index) {
    unsigned long long z = seed + (index + 1ull) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
