// Convolution, and its gradients, of images side by side (simd.h), with zeros around them.
//
// Loops are tiled so that about a dozen sums stay in registers. Every sum is taken by one thread
// and in an order that depends on the sizes alone.

#include "simd.h"

#include <algorithm>
#include <vector>

namespace {

struct Convolution {
  int64_t height, width, inputs;           // pixels and channels of the images
  int64_t out_height, out_width, outputs;  // and of what becomes of them
  int64_t kernel, stride, padding, batch;

  int64_t taps() const { return kernel * kernel; }

  // What output `at` sees through tap k: the input at this place, which may lie outside.
  int64_t seen(int64_t at, int64_t k) const { return at * stride + k - padding; }

  // The output, of `size`, that sees input `at` through tap k; or -1.
  int64_t seeing(int64_t at, int64_t k, int64_t size) const {
    const int64_t back = at + padding - k;
    if (back < 0 || back >= size * stride) return -1;
    return stride == 1 ? back : back % stride == 0 ? back / stride : -1;
  }
};

// A product that a pixel is the sum of: where its channels and its weights are.
struct Term {
  int64_t pixel, tap;
};

// Sums, over terms and channels, of weights times values: of so many filters and registers.
template <int Filters, int Registers>
void add_up(const std::vector<Term>& terms, int64_t channels, int64_t batch, const float* values,
            const float* weights, int64_t by_channel, int64_t by_filter, float* results) {
  Lanes sum[Filters][Registers];
  for (int f = 0; f < Filters; ++f)
    for (int r = 0; r < Registers; ++r) sum[f][r] = all(0);
  for (const Term& term : terms) {
    const float* value = values + term.pixel * channels * batch;
    const float* weight = weights + term.tap;
    for (int64_t c = 0; c < channels; ++c, value += batch, weight += by_channel) {
      Lanes lanes[Registers];
      for (int r = 0; r < Registers; ++r) lanes[r] = held(load(value + r * kLanes));
      for (int f = 0; f < Filters; ++f) {
        const Lanes factor = all(weight[f * by_filter]);
        for (int r = 0; r < Registers; ++r) sum[f][r] += factor * lanes[r];
      }
    }
  }
  for (int f = 0; f < Filters; ++f)
    for (int r = 0; r < Registers; ++r) store(results + f * batch + r * kLanes, sum[f][r]);
}

// All filters of one pixel; weights are strided, so that both directions read them as they are.
void pixel(const std::vector<Term>& terms, int64_t channels, int64_t filters, int64_t batch,
           const float* values, const float* weights, int64_t by_channel, int64_t by_filter,
           float* results) {
  each_piece<3>(batch / kLanes, [&](auto registers, int64_t r) {
    constexpr int kMost = registers == 1 ? 10 : registers == 2 ? 5 : 4;
    each_piece<kMost>(filters, [&](auto some, int64_t f) {
      add_up<some, registers>(terms, channels, batch, values + r * kLanes,
                              weights + f * by_filter, by_channel, by_filter,
                              results + f * batch + r * kLanes);
    });
  });
}

// Adds what some rows of outputs give to the gradients of so many outputs' weights for so many
// inputs; a lane of a sum belongs to an image.
template <int Outputs, int Inputs, int Registers>
void correlate(const Convolution& c, const float* image, const float* gradient, int64_t begin,
               int64_t end, float* sums, int64_t step) {
  const int64_t pixel = c.inputs * c.batch, out_pixel = c.outputs * c.batch;
  for (int64_t ky = 0; ky < c.kernel; ++ky)
    for (int64_t kx = 0; kx < c.kernel; ++kx) {
      int64_t left = 0, right = c.out_width;  // between them the tap is inside the image
      while (left < right && c.seen(left, kx) < 0) ++left;
      while (left < right && c.seen(right - 1, kx) >= c.width) --right;
      Lanes sum[Outputs][Inputs];
      for (int o = 0; o < Outputs; ++o)
        for (int i = 0; i < Inputs; ++i) sum[o][i] = all(0);
      for (int64_t y = begin; y < end; ++y) {
        const int64_t row = c.seen(y, ky);
        if (row < 0 || row >= c.height) continue;
        const float* x = image + (row * c.width + c.seen(left, kx)) * pixel;
        const float* g = gradient + (y * c.out_width + left) * out_pixel;
        for (int64_t at = left; at < right; ++at, x += c.stride * pixel, g += out_pixel)
          for (int r = 0; r < Registers; ++r) {
            Lanes value[Inputs];
            for (int i = 0; i < Inputs; ++i) value[i] = held(load(x + i * c.batch + r * kLanes));
            for (int o = 0; o < Outputs; ++o) {
              const Lanes factor = held(load(g + o * c.batch + r * kLanes));
              for (int i = 0; i < Inputs; ++i) sum[o][i] += factor * value[i];
            }
          }
      }
      for (int o = 0; o < Outputs; ++o)
        for (int i = 0; i < Inputs; ++i) {
          float* to = sums + ((o * c.inputs + i) * c.taps() + ky * c.kernel + kx) * step;
          store(to, load(to) + sum[o][i]);
        }
    }
}

float total(const float* s) {
  return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

}  // namespace

// images: [height, width, inputs, batch]; weights: [outputs, inputs, kernel, kernel];
// results: [out_height, out_width, outputs, batch].
extern "C" void convolve(const Convolution* shape, const float* images, const float* weights,
                         float* results, int threads) {
  const Convolution c = *shape;
#pragma omp parallel num_threads(threads)
  {
    std::vector<Term> terms;
#pragma omp for
    for (int64_t at = 0; at < c.out_height * c.out_width; ++at) {
      terms.clear();
      for (int64_t ky = 0; ky < c.kernel; ++ky)
        for (int64_t kx = 0; kx < c.kernel; ++kx) {
          const int64_t y = c.seen(at / c.out_width, ky), x = c.seen(at % c.out_width, kx);
          if (y >= 0 && y < c.height && x >= 0 && x < c.width)
            terms.push_back({y * c.width + x, ky * c.kernel + kx});
        }
      pixel(terms, c.inputs, c.outputs, c.batch, images, weights, c.taps(), c.inputs * c.taps(),
            results + at * c.outputs * c.batch);
    }
  }
}

// The gradient of the images, from that of the results.
extern "C" void convolve_back(const Convolution* shape, const float* gradient,
                              const float* weights, float* of_images, int threads) {
  const Convolution c = *shape;
#pragma omp parallel num_threads(threads)
  {
    std::vector<Term> terms;
#pragma omp for
    for (int64_t at = 0; at < c.height * c.width; ++at) {
      terms.clear();
      for (int64_t ky = 0; ky < c.kernel; ++ky)
        for (int64_t kx = 0; kx < c.kernel; ++kx) {
          const int64_t y = c.seeing(at / c.width, ky, c.out_height);
          const int64_t x = c.seeing(at % c.width, kx, c.out_width);
          if (y >= 0 && x >= 0) terms.push_back({y * c.out_width + x, ky * c.kernel + kx});
        }
      pixel(terms, c.outputs, c.inputs, c.batch, gradient, weights, c.inputs * c.taps(), c.taps(),
            of_images + at * c.inputs * c.batch);
    }
  }
}

// The gradient of the weights: of the first `each` images by themselves, [each, outputs, inputs,
// kernel, kernel], or if that is negative the sum over all. A few rows are treated at a time, so
// that they stay in the cache for all taps.
extern "C" void convolve_weights(const Convolution* shape, const float* images,
                                 const float* gradient, float* of_weights, int64_t each,
                                 int threads) {
  constexpr int64_t kPixels = 32;
  const Convolution c = *shape;
  const int64_t rows = pieces(kPixels, c.out_width), filter = c.inputs * c.taps();
  const bool summed = each < 0;
  const int64_t step = summed ? kLanes : c.batch;
#pragma omp parallel for num_threads(threads)
  for (int64_t index = 0; index < pieces(c.outputs, 4); ++index)
    piece<4>(c.outputs, index, [&](auto outputs, int64_t o) {
      std::vector<float> sums(outputs * filter * step);
      for (int64_t y = 0; y < c.out_height; y += rows)
        each_piece<3>(c.inputs, [&](auto inputs, int64_t i) {
          const int64_t end = std::min(c.out_height, y + rows);
          const float* x = images + i * c.batch;
          const float* g = gradient + o * c.batch;
          float* to = sums.data() + i * c.taps() * step;
          if (summed)
            each_piece<3>(c.batch / kLanes, [&](auto some, int64_t r) {
              r *= kLanes;
              correlate<outputs, inputs, some>(c, x + r, g + r, y, end, to, step);
            });
          else
            for (int64_t r = 0; r < c.batch; r += kLanes)
              correlate<outputs, inputs, 1>(c, x + r, g + r, y, end, to + r, step);
        });
      for (int64_t w = 0; w < outputs * filter; ++w) {
        const float* sum = sums.data() + w * step;
        float* to = of_weights + o * filter + w;
        if (summed) *to = total(sum);
        for (int64_t image = 0; image < each; ++image)
          to[image * c.outputs * filter] = sum[image];
      }
    });
}
