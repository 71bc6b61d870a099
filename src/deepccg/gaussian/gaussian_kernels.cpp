// The classifier's closed forms on a few hundred numbers, which PyTorch takes longer to be asked
// for than to compute. Everything is row-major; T is float or double.

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

// Mean and count of each class (Eq. 7), and how each embedding deviates from the mean of its class.
template <class T>
void centre(const T* z, const int64_t* y, T* mean, T* count, T* deviation, int64_t rows,
            int64_t classes, int64_t dim) {
  std::fill(mean, mean + classes * dim, T(0));
  std::fill(count, count + classes, T(0));
  for (int64_t i = 0; i < rows; ++i) {
    count[y[i]] += 1;
    for (int64_t d = 0; d < dim; ++d) mean[y[i] * dim + d] += z[i * dim + d];
  }
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t d = 0; d < dim; ++d) mean[c * dim + d] /= std::max(count[c], T(1));
  for (int64_t i = 0; i < rows; ++i, deviation += dim)
    for (int64_t d = 0; d < dim; ++d) deviation[d] = z[i * dim + d] - mean[y[i] * dim + d];
}

// Log N(z; mean_c, s_c^2 I) of one embedding for each class (numerator of Eq. 8); -inf where a
// class is masked or unknown. `factor` is what the squared distance is multiplied by.
template <class T>
void density_of(const T* z, const T* mean, const T* count, const uint8_t* mask, T scale,
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

// Log p(y | z) of each embedding and its gradient with respect to z, zero where there is no term:
// the embedding's own class must be known, and another besides.
template <class T>
void likelihood(const T* z, const T* mean, const T* count, const uint8_t* mask, const int64_t* y,
                T* term, T* gradient, uint8_t* exists, T scale, int shared, int64_t rows,
                int64_t classes, int64_t dim, int64_t mask_stride) {
  const T lowest = -std::numeric_limits<T>::infinity();
  std::vector<T> density(classes), factor(classes);
  for (int64_t b = 0; b < rows; ++b, z += dim, gradient += dim, mask += mask_stride) {
    density_of(z, mean, count, mask, scale, shared, classes, dim, density.data(), factor.data());
    T highest = lowest, sum = 0;
    int64_t known = 0;
    for (int64_t c = 0; c < classes; ++c)
      if (density[c] > lowest) ++known, highest = std::max(highest, density[c]);
    exists[b] = density[y[b]] > lowest && known >= 2;
    term[b] = 0;
    std::fill(gradient, gradient + dim, T(0));
    if (!exists[b]) continue;
    for (int64_t c = 0; c < classes; ++c)
      if (density[c] > lowest) sum += std::exp(density[c] - highest);
    term[b] = density[y[b]] - highest - std::log(sum);
    for (int64_t c = 0; c < classes; ++c) {
      if (!(density[c] > lowest)) continue;
      const T share = std::exp(density[c] - highest) / sum;
      const T weight = 2 * factor[c] * ((c == y[b]) - share);
      const T* own = mean + c * dim;
#pragma omp simd
      for (int64_t d = 0; d < dim; ++d) gradient[d] += weight * (z[d] - own[d]);
    }
  }
}

constexpr int64_t kSide = 16;  // candidates that are compared at once

// What each candidate counts in the mean to keep: new ones 1, the stored ones together what came
// before, or 1 each where that is not told (negative).
inline double share_of_stored(double before, int64_t stored) {
  return before < 0 || stored == 0 ? 1 : before / stored;
}

// One class. Removes, one by one, the candidate whose removal leaves the mean nearest the target,
// until its quota is left; of equals the first in `order`.
template <class T>
class Removal {
 public:
  explicit Removal(int64_t dim) : dim_(dim), target_(dim), sum_(dim) {}

  // z: rows of all embeddings; row: those of the candidates, the stored ones first.
  void run(const T* z, const std::vector<int64_t>& row, int64_t stored, double before,
           const std::vector<int64_t>& order, int64_t quota, std::vector<uint8_t>& keep) {
    const int64_t size = row.size();
    set_target(z, row, share_of_stored(before, stored), stored);
    std::fill(sum_.begin(), sum_.end(), T(0));
    blocks_.assign((size + kSide - 1) / kSide * dim_ * kSide, T(0));
    cost_.assign(blocks_.size() / dim_, T(0));
    for (int64_t i = 0; i < size; ++i) {
      const T* from = z + row[order[i]] * dim_;
      T* to = candidate(i);
      for (int64_t d = 0; d < dim_; ++d) sum_[d] += to[d * kSide] = from[d] - target_[d];
    }
    // n |mean of the rest - target| after removing i is |S - z_i| with S the sum of centred kept
    // z; half its square is half of |S|^2 and this:
    add_to_cost([this](int64_t d, T own) { return (own / 2 - sum_[d]) * own; });
    for (int64_t left = size; left > quota; --left) {
      int64_t leaves = -1;
      for (int64_t i = 0; i < size; ++i)
        if (keep[order[i]] && (leaves < 0 || cost_[i] < cost_[leaves])) leaves = i;
      keep[order[leaves]] = 0;
      const T* gone = candidate(leaves);  // S loses it
      add_to_cost([gone](int64_t d, T own) { return gone[d * kSide] * own; });
    }
  }

 private:
  // So many candidates lie side by side, a dimension behind the other.
  T* candidate(int64_t i) { return &blocks_[i / kSide * kSide * dim_ + i % kSide]; }

  // To the cost of each candidate the sum of what `part` makes of its dimensions.
  template <class Part>
  void add_to_cost(Part part) {
    const T* block = blocks_.data();
    for (size_t first = 0; first < cost_.size(); first += kSide, block += kSide * dim_) {
      T total[kSide] = {};
      for (int64_t d = 0; d < dim_; ++d)
#pragma omp simd
        for (int lane = 0; lane < kSide; ++lane) total[lane] += part(d, block[d * kSide + lane]);
      for (int lane = 0; lane < kSide; ++lane) cost_[first + lane] += total[lane];
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

// Stored examples (the first `stored` of the pool) and new ones compete for their class's quota
// (Eq. 10). `freed` becomes the stored ones that leave, `entering` the new ones that stay, counted
// from the first new one, class after class; `number` how many there are of each.
template <class T>
void exchange(const T* z, const int64_t* row, const int64_t* y, const int64_t* place_of,
              const int64_t* quota, const double* before, const float* key, int64_t* freed,
              int64_t* entering, int64_t* number, int64_t pool, int64_t stored, int64_t classes,
              int64_t candidates, int64_t dim) {
  std::vector<std::vector<int64_t>> members(classes);
  for (int64_t p = 0; p < pool; ++p)
    if (place_of[y[p]] >= 0) members[place_of[y[p]]].push_back(p);
  Removal<T> removal(dim);
  std::vector<int64_t> rows, order;
  std::vector<uint8_t> keep;
  number[0] = number[1] = 0;
  for (int64_t k = 0; k < classes; ++k, key += candidates) {
    const std::vector<int64_t>& own = members[k];
    const int64_t size = own.size();
    const int64_t held = std::lower_bound(own.begin(), own.end(), stored) - own.begin();
    rows.resize(size), order.resize(size), keep.assign(size, 1);
    for (int64_t i = 0; i < size; ++i) rows[i] = row[own[i]], order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [key](int64_t a, int64_t b) { return key[a] > key[b]; });
    if (size > quota[k]) removal.run(z, rows, held, before[k], order, quota[k], keep);
    for (int64_t i = 0; i < size; ++i) {
      if (i < held && !keep[i]) freed[number[0]++] = own[i];
      if (i >= held && keep[i]) entering[number[1]++] = own[i] - stored;
    }
  }
}

}  // namespace

#define FOR_TYPE(T, name)                                                                         \
  extern "C" void centre_##name(const T* z, const int64_t* y, T* mean, T* count, T* deviation,    \
                                int64_t rows, int64_t classes, int64_t dim) {                     \
    centre<T>(z, y, mean, count, deviation, rows, classes, dim);                                  \
  }                                                                                               \
  extern "C" void likelihood_##name(                                                              \
      const T* z, const T* mean, const T* count, const uint8_t* mask, const int64_t* y, T* term,  \
      T* gradient, uint8_t* exists, double scale, int shared, int64_t rows, int64_t classes,      \
      int64_t dim, int64_t mask_stride) {                                                         \
    likelihood<T>(z, mean, count, mask, y, term, gradient, exists, T(scale), shared, rows,        \
                  classes, dim, mask_stride);                                                     \
  }                                                                                               \
  extern "C" void exchange_##name(                                                                \
      const T* z, const int64_t* row, const int64_t* y, const int64_t* place_of,                  \
      const int64_t* quota, const double* before, const float* key, int64_t* freed,               \
      int64_t* entering, int64_t* number, int64_t pool, int64_t stored, int64_t classes,          \
      int64_t candidates, int64_t dim) {                                                          \
    exchange<T>(z, row, y, place_of, quota, before, key, freed, entering, number, pool, stored,   \
                classes, candidates, dim);                                                        \
  }

FOR_TYPE(float, float32)
FOR_TYPE(double, float64)
