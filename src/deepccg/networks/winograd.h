// Convolution by 3 x 3 taps with stride 1 in half the products, after Winograd (Lavin and Gray,
// "Fast algorithms for convolutional neural networks", 2016), along each row of pixels: with d six
// pixels, g the three taps of a row, * the product of each place with its own, four results are
//
//     A' ((G g) * (B' d)),    and the gradient of the taps is    G' ((A gradient) * (B' d)).
//
// So rows are transformed once, sums over channels and rows of taps are matrix products at each of
// six places, and the results are transformed back. The points of the polynomials are 0, +-kA,
// +-kB and infinity: with them rounding stays within a few times that of the plain sum.

#pragma once

#include "simd.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kTaps = 3, kTile = 4, kPlaces = kTile + kTaps - 1;
constexpr float kA = 0.70710678f, kB = 1.41421356f;

struct OfPixels {  // B'
  static constexpr int kFrom = kPlaces, kTo = kPlaces;
  static void apply(const Simd* d, Simd* to) {
    const Simd a = d[4] - 2 * d[2], a_odd = kA * (d[3] - 2 * d[1]);
    const Simd b = d[4] - d[2] / 2, b_odd = kB * (d[3] - d[1] / 2);
    to[0] = d[0] - 2.5f * d[2] + d[4];
    to[1] = a + a_odd;
    to[2] = a - a_odd;
    to[3] = b + b_odd;
    to[4] = b - b_odd;
    to[5] = d[1] - 2.5f * d[3] + d[5];
  }
};
struct OfTaps {  // G
  static constexpr int kFrom = kTaps, kTo = kPlaces;
  static void apply(const Simd* g, Simd* to) {
    const Simd a = (g[0] + g[2] / 2) * (-2 / 3.f), a_odd = g[1] * (-2 / 3.f * kA);
    const Simd b = (g[0] + 2 * g[2]) / 6, b_odd = g[1] * (kB / 6);
    to[0] = g[0];
    to[1] = a + a_odd;
    to[2] = a - a_odd;
    to[3] = b + b_odd;
    to[4] = b - b_odd;
    to[5] = g[2];
  }
};
struct ToTaps {  // G'
  static constexpr int kFrom = kPlaces, kTo = kTaps;
  static void apply(const Simd* p, Simd* to) {
    const Simd a = p[1] + p[2], b = p[3] + p[4];
    to[0] = p[0] - a * (2 / 3.f) + b / 6;
    to[1] = (p[3] - p[4]) * (kB / 6) - (p[1] - p[2]) * (2 / 3.f * kA);
    to[2] = (b - a) / 3 + p[5];
  }
};
struct ToResults {  // A'
  static constexpr int kFrom = kPlaces, kTo = kTile;
  static void apply(const Simd* p, Simd* to) {
    const Simd a = p[1] + p[2], a_odd = kA * (p[1] - p[2]);
    const Simd b = p[3] + p[4], b_odd = kB * (p[3] - p[4]);
    to[0] = p[0] + a + b;
    to[1] = a_odd + b_odd;
    to[2] = a / 2 + 2 * b;
    to[3] = a_odd / 2 + 2 * b_odd + p[5];
  }
};
struct OfResults {  // A
  static constexpr int kFrom = kTile, kTo = kPlaces;
  static void apply(const Simd* y, Simd* to) {
    const Simd a = y[0] + y[2] / 2, a_odd = kA * (y[1] + y[3] / 2);
    const Simd b = y[0] + 2 * y[2], b_odd = kB * (y[1] + 2 * y[3]);
    to[0] = y[0];
    to[1] = a + a_odd;
    to[2] = a - a_odd;
    to[3] = b + b_odd;
    to[4] = b - b_odd;
    to[5] = y[3];
  }
};

// [height, width, channels, batch]
template <class Float>
struct Images {
  Float* values;
  int64_t height, width, channels, batch;

  int64_t pixel() const { return channels * batch; }
  int64_t tiles() const { return tile_count(width, kTile); }

  // Finds `Count` pixels of row y, from `left` on; those outside the image are at `outside`.
  template <int Count>
  void find(int64_t y, int64_t left, Float* outside, Float** pixels) const {
    for (int64_t k = 0, x = left; k < Count; ++k, ++x)
      pixels[k] = x >= 0 && x < width ? values + (y * width + x) * pixel() : outside;
  }
};

constexpr int64_t kLine = 16;  // floats of a line of the cache

// Floats that begin with a line of the cache, so that no register lies in two.
class Floats {
 public:
  explicit Floats(int64_t count) : lines_(tile_count(count, kLine)) {}
  float* at(int64_t index) { return reinterpret_cast<float*>(lines_.data()) + index; }

 private:
  struct alignas(4 * kLine) Line {
    float values[kLine];
  };
  std::vector<Line> lines_;
};

// A few transformed rows: [rows, places, channels, columns]; a column is an image of a tile.
struct Rows {
  int64_t count, channels, stride;
  Floats values;

  // An odd number of lines: channels do not displace each other from the cache.
  Rows(int64_t count, int64_t channels, int64_t columns)
      : count(count), channels(channels), stride((tile_count(columns, kLine) | 1) * kLine),
        values(count * kPlaces * channels * stride) {}
  float* at(int64_t row, int64_t place, int64_t channel = 0) {
    return values.at(((row % count * kPlaces + place) * channels + channel) * stride);
  }
};

// Transforms the pixels from (y, left) on into the columns of a row.
template <class Transform>
void transform_in(const Images<const float>& images, int64_t y, int64_t left, const float* zeros,
                  Rows& rows, int64_t row, int64_t column) {
  const float* pixels[Transform::kFrom];
  images.find<Transform::kFrom>(y, left, zeros, pixels);
  const int64_t channels = images.channels, batch = images.batch, stride = rows.stride;
  float* first = rows.at(row, 0) + column;
  for (int64_t channel = 0; channel < channels; ++channel, first += stride)
    for (int64_t b = 0; b < batch; b += kLanes) {
      Simd from[Transform::kFrom], to[kPlaces];
      for (int k = 0; k < Transform::kFrom; ++k) from[k] = load(pixels[k] + channel * batch + b);
      Transform::apply(from, to);
      for (int p = 0; p < kPlaces; ++p) store(first + p * channels * stride + b, to[p]);
    }
}

void transform_out(Rows& rows, int64_t column, const Images<float>& images, int64_t y,
                   int64_t left, float* unused) {
  float* pixels[kTile];
  images.find<kTile>(y, left, unused, pixels);
  const int64_t channels = images.channels, batch = images.batch, stride = rows.stride;
  const float* first = rows.at(0, 0) + column;
  for (int64_t channel = 0; channel < channels; ++channel, first += stride)
    for (int64_t b = 0; b < batch; b += kLanes) {
      Simd from[kPlaces], to[kTile];
      for (int p = 0; p < kPlaces; ++p) from[p] = load(first + p * channels * stride + b);
      ToResults::apply(from, to);
      for (int k = 0; k < kTile; ++k) store(pixels[k] + channel * batch + b, to[k]);
    }
}

// Two matrices to be multiplied.
struct Factors {
  const float *left, *right;
};

// results[Filters, registers] = the sum over terms and channels of weights [channels, filters]
// times values [channels, columns].
template <int Filters, int Registers>
void products(const std::vector<Factors>& terms, int64_t channels, int64_t weights_stride,
              int64_t stride, int64_t filter, int64_t column, float* results) {
  Simd sum[Filters][Registers];
  for (int f = 0; f < Filters; ++f)
    for (int r = 0; r < Registers; ++r) sum[f][r] = broadcast(0);
  for (const Factors& term : terms) {
    const float *weight = term.left + filter, *value = term.right + column;
    for (int64_t c = 0; c < channels; ++c, weight += weights_stride, value += stride) {
      Simd loaded[Registers];
      for (int r = 0; r < Registers; ++r) loaded[r] = in_register(load(value + r * kLanes));
      for (int f = 0; f < Filters; ++f) {
        const Simd factor = broadcast(weight[f]);
        for (int r = 0; r < Registers; ++r) sum[f][r] += factor * loaded[r];
      }
    }
  }
  for (int f = 0; f < Filters; ++f)
    for (int r = 0; r < Registers; ++r)
      store(results + (filter + f) * stride + column + r * kLanes, sum[f][r]);
}

// sums[Outputs, Inputs] += the sum over terms and columns of gradients times values.
template <int Outputs, int Inputs>
void inner_products(const std::vector<Factors>& terms, int64_t columns, int64_t gradient_stride,
                    int64_t stride, int64_t output, int64_t input, float* sums,
                    int64_t sums_stride) {
  Simd sum[Outputs][Inputs];
  for (int o = 0; o < Outputs; ++o)
    for (int i = 0; i < Inputs; ++i) sum[o][i] = broadcast(0);
  for (const Factors& term : terms) {
    const float* gradient = term.left + output * gradient_stride;
    const float* value = term.right + input * stride;
    for (int64_t at = 0; at < columns; at += kLanes) {
      Simd loaded[Inputs];
      for (int i = 0; i < Inputs; ++i) loaded[i] = in_register(load(value + i * stride + at));
      for (int o = 0; o < Outputs; ++o) {
        const Simd factor = in_register(load(gradient + o * gradient_stride + at));
        for (int i = 0; i < Inputs; ++i) sum[o][i] += factor * loaded[i];
      }
    }
  }
  for (int o = 0; o < Outputs; ++o)
    for (int i = 0; i < Inputs; ++i)
      sums[(output + o) * sums_stride + input + i] += total(sum[o][i]);
}

inline int64_t whole_registers(int64_t count) { return tile_count(count, kLanes) * kLanes; }

// The taps of each row and input, transformed: [places, kTaps, inputs, outputs].
// weight(output, input, tap) is one of them.
template <class Weight>
Floats transform_weights(int64_t inputs, int64_t outputs, Weight weight) {
  const int64_t rows = kTaps * inputs, stride = whole_registers(outputs);
  Floats weights(kPlaces * rows * stride);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t o = 0; o < outputs; o += kLanes) {
      Simd taps[kTaps] = {}, to[kPlaces];
      for (int k = 0; k < kTaps; ++k)
        for (int64_t lane = 0; lane < std::min(kLanes, outputs - o); ++lane)
          taps[k][lane] = weight(o + lane, row % inputs, row / inputs * kTaps + k);
      OfTaps::apply(taps, to);
      for (int p = 0; p < kPlaces; ++p) store(weights.at((p * rows + row) * stride + o), to[p]);
    }
  return weights;
}

// Strips of tiles, as wide as three rows of them stay in the cache, from top to bottom.
template <class Weight>
void convolve_rows(const Images<const float>& images, int64_t padding, Weight weight,
                   const Images<float>& results, int threads) {
  constexpr int64_t kColumns = 192;
  const int64_t inputs = images.channels, outputs = results.channels, batch = images.batch;
  const int64_t bottom = images.height + padding, tiles = results.tiles();
  const int64_t strips = tile_count(tiles * batch, std::max(kColumns, batch));
  const int64_t columns = tile_count(tiles, std::max<int64_t>(strips, 1)) * batch;
  const int64_t weights_stride = whole_registers(outputs);
  Floats weights = transform_weights(inputs, outputs, weight);
#pragma omp parallel num_threads(threads)
  {
    Rows in(kTaps, inputs, columns), out(1, outputs, columns);
    std::vector<float> zeros(images.pixel()), unused(results.pixel());
    std::vector<Factors> terms;
#pragma omp for
    for (int64_t task = 0; task < strips * threads; ++task) {
      const int64_t strip = task / threads, first = strip * tiles / strips;
      const int64_t count = (strip + 1) * tiles / strips - first;
      const int64_t band = task % threads, end = (band + 1) * results.height / threads;
      int64_t next = band * results.height / threads;  // not transformed yet
      for (int64_t y = next; y < end; ++y) {
        for (; next < y + kTaps; ++next)
          for (int64_t t = 0; t < count && next >= padding && next < bottom; ++t)
            transform_in<OfPixels>(images, next - padding, (first + t) * kTile - padding,
                                   zeros.data(), in, next, t * batch);
        for (int64_t place = 0; place < kPlaces; ++place) {
          terms.clear();
          for (int64_t k = 0; k < kTaps; ++k)
            if (y + k >= padding && y + k < bottom)
              terms.push_back({weights.at((place * kTaps + k) * inputs * weights_stride),
                               in.at(y + k, place)});
          for_each_tile<3>(count * batch / kLanes, [&](auto registers, int64_t r) {
            for_each_tile<4>(outputs, [&](auto filters, int64_t f) {
              products<filters, registers>(terms, inputs, weights_stride, in.stride, f, r * kLanes,
                                           out.at(0, place));
            });
          });
        }
        for (int64_t t = 0; t < count; ++t)
          transform_out(out, t * batch, results, y, (first + t) * kTile, unused.data());
      }
    }
  }
}

// The gradient of the weights [outputs, inputs, kTaps, kTaps], a few rows at a time: enough columns
// that it does not count to add up the lanes of the sums.
void weights_gradient_of_rows(const Images<const float>& images, int64_t padding,
                              const Images<const float>& gradient, float* weights_gradient,
                              int threads) {
  constexpr int64_t kColumns = 200;
  const int64_t inputs = images.channels, outputs = gradient.channels, batch = images.batch;
  const int64_t bottom = images.height + padding, tiles = gradient.tiles();
  const int64_t columns = tiles * batch, group = tile_count(kColumns, columns + 1);
  Rows in(group + kTaps - 1, inputs, columns), out(group, outputs, columns);
  const std::vector<float> zeros(std::max(inputs, outputs) * batch);
  const int64_t rows = kTaps * outputs, stride = whole_registers(inputs);
  Floats sums(kPlaces * rows * stride);
#pragma omp parallel num_threads(threads)
  {
    std::vector<Factors> terms;
    int64_t next = padding;  // row of the images, moved by the padding: not transformed yet
    for (int64_t y = 0; y < gradient.height; y += group) {
      const int64_t end = std::min(y + group, gradient.height);
      const int64_t needed = std::min(end + kTaps - 1, bottom);
#pragma omp for
      for (int64_t t = 0; t < tiles; ++t) {
        for (int64_t row = next; row < needed; ++row)
          transform_in<OfPixels>(images, row - padding, t * kTile - padding, zeros.data(), in, row,
                                 t * batch);
        for (int64_t row = y; row < end; ++row)
          transform_in<OfResults>(gradient, row, t * kTile, zeros.data(), out, row, t * batch);
      }
      next = std::max(next, needed);
#pragma omp for
      for (int64_t at = 0; at < kPlaces * kTaps; ++at) {
        const int64_t place = at / kTaps, k = at % kTaps;
        terms.clear();
        for (int64_t row = y; row < end; ++row)
          if (row + k >= padding && row + k < bottom)
            terms.push_back({out.at(row, place), in.at(row + k, place)});
        for_each_tile<4>(outputs, [&](auto some_outputs, int64_t o) {
          for_each_tile<3>(inputs, [&](auto some_inputs, int64_t i) {
            inner_products<some_outputs, some_inputs>(terms, columns, out.stride, in.stride, o, i,
                                                      sums.at(at * outputs * stride), stride);
          });
        });
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < inputs; i += kLanes) {
      Simd places[kPlaces], taps[kTaps];
      for (int p = 0; p < kPlaces; ++p) places[p] = load(sums.at((p * rows + row) * stride + i));
      ToTaps::apply(places, taps);
      const int64_t k = row / outputs, o = row % outputs;
      for (int64_t lane = 0; lane < std::min(kLanes, inputs - i); ++lane)
        for (int x = 0; x < kTaps; ++x)
          weights_gradient[((o * inputs + i + lane) * kTaps + k) * kTaps + x] = taps[x][lane];
    }
}

}  // namespace
