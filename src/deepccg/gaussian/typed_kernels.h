// The kernels, for numbers of type T: gaussian_kernels.cpp includes this file once for each type.

// Mean and count of each class (Eq. 7), and the deviation of each embedding from its class's mean.
KERNEL_OF_T(centre, const T* z, const int64_t* y, T* mean, T* count, T* deviation, int64_t rows,
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

// Log p(y | z) of each embedding and its gradient with respect to z. Valid, and not zero, where the
// embedding's own class and at least one other are known.
KERNEL_OF_T(likelihood, const T* z, const T* mean, const T* count, const uint8_t* mask,
            const int64_t* y, T* log_prob, T* gradient, uint8_t* valid, double scale, int shared,
            int64_t rows, int64_t classes, int64_t dim, int64_t mask_stride) {
  const T lowest = -std::numeric_limits<T>::infinity();
  std::vector<T> density(classes), factor(classes);
  for (int64_t b = 0; b < rows; ++b, z += dim, gradient += dim, mask += mask_stride) {
    log_densities(z, mean, count, mask, T(scale), shared, classes, dim, density.data(),
                  factor.data());
    T highest = lowest, sum = 0;
    int64_t n_known = 0;
    for (int64_t c = 0; c < classes; ++c)
      if (density[c] > lowest) ++n_known, highest = std::max(highest, density[c]);
    valid[b] = density[y[b]] > lowest && n_known >= 2;
    log_prob[b] = 0;
    std::fill(gradient, gradient + dim, T(0));
    if (!valid[b]) continue;
    for (int64_t c = 0; c < classes; ++c)
      if (density[c] > lowest) sum += std::exp(density[c] - highest);
    log_prob[b] = density[y[b]] - highest - std::log(sum);
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

// Stored examples (the first `stored` of the pool) and new ones compete for their class's quota
// (Eq. 10). Writes the stored ones that leave to `evicted`, the new ones that stay, counted from
// the first new one, to `admitted`, both class after class, and how many they are to `n_changed`.
// class_index: for each class column its index among the `classes` that are reselected, or -1.
KERNEL_OF_T(exchange, const T* z, const int64_t* row, const int64_t* y,
            const int64_t* class_index, const int64_t* quota, const double* seen,
            const float* key, int64_t* evicted, int64_t* admitted, int64_t* n_changed,
            int64_t pool, int64_t stored, int64_t classes, int64_t candidates, int64_t dim) {
  std::vector<std::vector<int64_t>> members(classes);
  for (int64_t p = 0; p < pool; ++p)
    if (class_index[y[p]] >= 0) members[class_index[y[p]]].push_back(p);
  GreedyRemoval<T> removal(dim);
  std::vector<int64_t> rows, order;
  std::vector<uint8_t> keep;
  n_changed[0] = n_changed[1] = 0;
  for (int64_t k = 0; k < classes; ++k, key += candidates) {
    const std::vector<int64_t>& own = members[k];
    const int64_t size = own.size();
    const int64_t n_stored = std::lower_bound(own.begin(), own.end(), stored) - own.begin();
    rows.resize(size), order.resize(size), keep.assign(size, 1);
    for (int64_t i = 0; i < size; ++i) rows[i] = row[own[i]], order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [key](int64_t a, int64_t b) { return key[a] > key[b]; });
    if (size > quota[k]) removal.run(z, rows, n_stored, seen[k], order, quota[k], keep);
    for (int64_t i = 0; i < size; ++i) {
      if (i < n_stored && !keep[i]) evicted[n_changed[0]++] = own[i];
      if (i >= n_stored && keep[i]) admitted[n_changed[1]++] = own[i] - stored;
    }
  }
}
