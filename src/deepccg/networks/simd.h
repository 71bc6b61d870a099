// What the kernels share: SIMD registers of a few images, and loops in tiles of constant size.
//
// Images lie batch last, [height, width, channels, batch], the batch a multiple of kLanes. A lane
// of a register belongs to an image, so that no lane stays empty, whatever the size of the images
// and the number of channels, and what is computed of an image depends on no other.

#pragma once

#include <cstdint>
#include <type_traits>

#ifndef DEEPCCG_LANES
#ifdef __aarch64__
#define DEEPCCG_LANES 4  // NEON
#else
#define DEEPCCG_LANES 8  // AVX2; 16 are for AVX-512, which gained nothing (docs/performance.md)
#endif
#endif

constexpr int64_t kLanes = DEEPCCG_LANES;
typedef float Simd __attribute__((vector_size(4 * kLanes)));
typedef Simd Unaligned __attribute__((aligned(4), may_alias));  // in an array of floats

inline Simd load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
inline void store(float* to, Simd value) { *reinterpret_cast<Unaligned*>(to) = value; }
inline Simd broadcast(float s) { return s - Simd{}; }  // minus, as s + 0 is not s if s is -0

// The sum of the lanes, by halves.
inline float total(const Simd& value) {
  float sums[kLanes];
  store(sums, value);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

// The value in a register; without it GCC reads what is used twice from memory twice.
inline Simd in_register(Simd value) {
#if defined(__AVX512F__) || (defined(__AVX2__) && DEEPCCG_LANES <= 8)
  asm("" : "+v"(value));
#elif defined(__aarch64__) && DEEPCCG_LANES <= 4
  asm("" : "+w"(value));
#endif
  return value;
}

template <int Most, class Use>
inline void with_constant(int64_t size, Use use) {
  if (size == Most)
    use(std::integral_constant<int, Most>{});
  else if constexpr (Most > 1)
    with_constant<Most - 1>(size, use);
}

// How many tiles of at most `most`, of nearly the same size, a loop over `count` is cut into.
inline int64_t tile_count(int64_t count, int64_t most) { return (count + most - 1) / most; }

// use(size, first) for one tile; its size is a compile-time constant, so that loops are unrolled.
template <int Most, class Use>
inline void for_tile(int64_t count, int64_t index, Use use) {
  const int64_t tiles = tile_count(count, Most), first = index * count / tiles;
  with_constant<Most>((index + 1) * count / tiles - first, [&](auto size) { use(size, first); });
}

template <int Most, class Use>
inline void for_each_tile(int64_t count, Use use) {
  for (int64_t index = 0; index < tile_count(count, Most); ++index)
    for_tile<Most>(count, index, use);
}
