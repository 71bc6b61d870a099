// What the kernels share: eight images as one value, and loops cut into pieces of known size.
//
// Images lie side by side, [height, width, channels, batch], the batch a multiple of eight. A
// register holds one place of eight images, so that none stays partly empty, whatever the size of
// the images and the number of channels, and what is computed of an image depends on no other.

#pragma once

#include <cstdint>
#include <type_traits>

constexpr int64_t kLanes = 8;
typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef Lanes Anywhere __attribute__((aligned(4), may_alias));  // in an array of floats

inline Lanes load(const float* from) { return *reinterpret_cast<const Anywhere*>(from); }
inline void store(float* to, Lanes value) { *reinterpret_cast<Anywhere*>(to) = value; }
inline Lanes all(float s) { return Lanes{s, s, s, s, s, s, s, s}; }

// The value in a register; without it GCC reads what is used twice from memory twice.
inline Lanes held(Lanes value) {
#ifdef __AVX2__
  asm("" : "+x"(value));
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

// `count` things are so many pieces of at most `most`, of nearly the same size.
inline int64_t pieces(int64_t count, int64_t most) { return (count + most - 1) / most; }

// use(size, first) for one of them; the size is a constant, for which loops are unrolled.
template <int Most, class Use>
inline void piece(int64_t count, int64_t index, Use use) {
  const int64_t of = pieces(count, Most), first = index * count / of;
  with_constant<Most>((index + 1) * count / of - first, [&](auto size) { use(size, first); });
}

template <int Most, class Use>
inline void each_piece(int64_t count, Use use) {
  for (int64_t index = 0; index < pieces(count, Most); ++index) piece<Most>(count, index, use);
}
