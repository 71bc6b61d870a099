// The classifier's closed forms on a few hundred numbers: one call instead of dozens of PyTorch's
// operations, each of which costs more to dispatch than to compute. Everything is row-major.
//
// Here is what the kernels share; they themselves are in typed_kernels.h, included for each type.

#include "../core/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

template <class T>
T squared_distance(const T* a, const T* b, int64_t dim) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t d = 0; d < dim; ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return sum;
}

// Log N(z; mean_c, s_c^2 I) of one embedding for each class (numerator of Eq. 8); -inf where a
// class is masked or unknown. `factor` is what the squared distance is multiplied by.
template <class T>
void log_densities(const T* z, const T* mean, const T* count, const uint8_t* mask, T scale,
                bool shared, int64_t classes, int64_t dim, T* density, T* factor) {
  T number = 0, total = 0;
  for (int64_t c = 0; c < classes; ++c)
    if (mask[c] && count[c] > 0) number += 1, total += count[c];
  for (int64_t c = 0; c < classes; ++c) {
    factor[c] = 0, density[c] = -std::numeric_limits<T>::infinity();
    if (!mask[c] || !(count[c] > 0)) continue;
    const T spread = 1 + (shared ? number / total : 1 / count[c]);
    factor[c] = T(-0.5) * scale * scale / spread;
    density[c] = factor[c] * squared_distance(z, mean + c * dim, dim);
    // The same for all classes of a row where the variance is shared: it cancels in Eq. 8.
    if (!shared) density[c] -= T(0.5) * dim * std::log(spread);
  }
}

constexpr int64_t kLanes = 16;  // candidates that are compared at once

// The weight of a stored candidate in the mean to keep, where a new one has 1: the stored ones
// stand for the `seen` examples before them, or if that is negative for themselves.
inline double stored_weight(double seen, int64_t stored) {
  return seen < 0 || stored == 0 ? 1 : seen / stored;
}

// One class. Removes, one by one, the candidate whose removal leaves the mean nearest the target,
// until its quota is left; of equals the first in `order`.
template <class T>
class GreedyRemoval {
 public:
  explicit GreedyRemoval(int64_t dim) : dim_(dim), target_(dim), sum_(dim) {}

  // z: rows of all embeddings; row: those of the candidates, the stored ones first.
  void run(const T* z, const std::vector<int64_t>& row, int64_t stored, double seen,
           const std::vector<int64_t>& order, int64_t quota, std::vector<uint8_t>& keep) {
    const int64_t size = row.size();
    set_target(z, row, stored_weight(seen, stored), stored);
    std::fill(sum_.begin(), sum_.end(), T(0));
    blocks_.assign((size + kLanes - 1) / kLanes * dim_ * kLanes, T(0));
    cost_.assign(blocks_.size() / dim_, T(0));
    for (int64_t i = 0; i < size; ++i) {
      const T* from = z + row[order[i]] * dim_;
      T* to = candidate(i);
      for (int64_t d = 0; d < dim_; ++d) sum_[d] += to[d * kLanes] = from[d] - target_[d];
    }
    // n |mean of the rest - target| after removing i is |S - z_i| with S the sum of centred kept
    // z; half its square is half of |S|^2 and this:
    add_to_cost([this](int64_t d, T own) { return (own / 2 - sum_[d]) * own; });
    for (int64_t left = size; left > quota; --left) {
      int64_t worst = -1;
      for (int64_t i = 0; i < size; ++i)
        if (keep[order[i]] && (worst < 0 || cost_[i] < cost_[worst])) worst = i;
      keep[order[worst]] = 0;
      const T* removed = candidate(worst);  // S loses it
      add_to_cost([removed](int64_t d, T own) { return removed[d * kLanes] * own; });
    }
  }

 private:
  // Blocks of kLanes candidates, [dim, kLanes] each: a lane of a SIMD register is a candidate.
  T* candidate(int64_t i) { return &blocks_[i / kLanes * kLanes * dim_ + i % kLanes]; }

  // Adds, to the cost of each candidate, the sum of part(d, coordinate) over its dimensions.
  template <class Part>
  void add_to_cost(Part part) {
    const T* block = blocks_.data();
    for (size_t first = 0; first < cost_.size(); first += kLanes, block += kLanes * dim_) {
      T total[kLanes] = {};
      for (int64_t d = 0; d < dim_; ++d)
#pragma omp simd
        for (int lane = 0; lane < kLanes; ++lane) total[lane] += part(d, block[d * kLanes + lane]);
      for (int lane = 0; lane < kLanes; ++lane) cost_[first + lane] += total[lane];
    }
  }

  void set_target(const T* z, const std::vector<int64_t>& row, double share, int64_t stored) {
    const int64_t size = row.size();
    const double whole = share * stored + (size - stored);
    std::fill(target_.begin(), target_.end(), T(0));
    for (int64_t i = 0; i < size; ++i) {
      const T weight = T((i < stored ? share : 1) / whole);
      const T* from = z + row[i] * dim_;
#pragma omp simd
      for (int64_t d = 0; d < dim_; ++d) target_[d] += weight * from[d];
    }
  }

  int64_t dim_;
  std::vector<T> target_, sum_, blocks_, cost_;
};

}  // namespace

#define T float
#define KERNEL_OF_T(name, ...) KERNEL(name##_float32, __VA_ARGS__)
#include "typed_kernels.h"
#undef T
#undef KERNEL_OF_T

#define T double
#define KERNEL_OF_T(name, ...) KERNEL(name##_float64, __VA_ARGS__)
#include "typed_kernels.h"
