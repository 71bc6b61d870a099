// Convolution of images that lie batch last (simd.h), with zero padding, and its gradients.
//
// Loops are tiled so that about a dozen sums stay in registers. Every sum is taken by one thread
// and in an order that depends on the sizes alone.

#include "../core/kernel.h"
#include "simd.h"
#include "winograd.h"

#include <algorithm>
#include <vector>

// Pixels and channels (inputs, outputs) of the images and of the results; kernel is its side.
KERNEL_SIZES(ConvolutionSizes, height, width, inputs, out_height, out_width, outputs, kernel,
             stride, padding, batch);

namespace {

struct Convolution : ConvolutionSizes {
  int64_t taps() const { return kernel * kernel; }

  // Whether there are fewer products (winograd.h).
  bool by_rows() const { return kernel == kTaps && stride == 1 && padding < kTaps; }

  template <class Float>
  Images<Float> images(Float* values) const {
    return {values, height, width, inputs, batch};
  }
  template <class Float>
  Images<Float> results(Float* values) const {
    return {values, out_height, out_width, outputs, batch};
  }

  // The input that output `at` reads through tap k; it may lie in the padding.
  int64_t input_of(int64_t at, int64_t k) const { return at * stride + k - padding; }

  // The output, of `size`, that reads input `at` through tap k; or -1.
  int64_t output_of(int64_t at, int64_t k, int64_t size) const {
    const int64_t back = at + padding - k;
    if (back < 0 || back >= size * stride) return -1;
    return stride == 1 ? back : back % stride == 0 ? back / stride : -1;
  }
};

// One product in the sum of a pixel: where its channels and its weights are.
struct Term {
  int64_t pixel, tap;
};

// Sums of weights times values over terms and channels, for a tile of filters and registers.
template <int Filters, int Registers>
void weighted_sums(const std::vector<Term>& terms, int64_t channels, int64_t batch,
                   const float* values, const float* weights, int64_t channel_stride,
                   int64_t filter_stride, float* results) {
  Simd sum[Filters][Registers];
  for (int f = 0; f < Filters; ++f)
    for (int r = 0; r < Registers; ++r) sum[f][r] = broadcast(0);
  for (const Term& term : terms) {
    const float* value = values + term.pixel * channels * batch;
    const float* weight = weights + term.tap;
    for (int64_t c = 0; c < channels; ++c, value += batch, weight += channel_stride) {
      Simd loaded[Registers];
      for (int r = 0; r < Registers; ++r) loaded[r] = in_register(load(value + r * kLanes));
      for (int f = 0; f < Filters; ++f) {
        const Simd factor = broadcast(weight[f * filter_stride]);
        for (int r = 0; r < Registers; ++r) sum[f][r] += factor * loaded[r];
      }
    }
  }
  for (int f = 0; f < Filters; ++f)
    for (int r = 0; r < Registers; ++r) store(results + f * batch + r * kLanes, sum[f][r]);
}

// All filters of one pixel; weights are strided, so that both directions read them as they are.
void pixel(const std::vector<Term>& terms, int64_t channels, int64_t filters, int64_t batch,
           const float* values, const float* weights, int64_t channel_stride, int64_t filter_stride,
           float* results) {
  for_each_tile<3>(batch / kLanes, [&](auto registers, int64_t r) {
    constexpr int kMost = registers == 1 ? 10 : registers == 2 ? 5 : 4;
    for_each_tile<kMost>(filters, [&](auto some, int64_t f) {
      weighted_sums<some, registers>(terms, channels, batch, values + r * kLanes,
                                     weights + f * filter_stride, channel_stride, filter_stride,
                                     results + f * batch + r * kLanes);
    });
  });
}

// Adds the contribution of output rows [begin, end) to the weight gradients of a tile of outputs
// and inputs; a lane of a sum belongs to an image.
template <int Outputs, int Inputs, int Registers>
void correlate(const Convolution& c, const float* image, const float* gradient, int64_t begin,
               int64_t end, float* sums, int64_t step) {
  const int64_t pixel = c.inputs * c.batch, out_pixel = c.outputs * c.batch;
  for (int64_t ky = 0; ky < c.kernel; ++ky)
    for (int64_t kx = 0; kx < c.kernel; ++kx) {
      int64_t left = 0, right = c.out_width;  // between them the tap is inside the image
      while (left < right && c.input_of(left, kx) < 0) ++left;
      while (left < right && c.input_of(right - 1, kx) >= c.width) --right;
      Simd sum[Outputs][Inputs];
      for (int o = 0; o < Outputs; ++o)
        for (int i = 0; i < Inputs; ++i) sum[o][i] = broadcast(0);
      for (int64_t y = begin; y < end; ++y) {
        const int64_t row = c.input_of(y, ky);
        if (row < 0 || row >= c.height) continue;
        const float* x = image + (row * c.width + c.input_of(left, kx)) * pixel;
        const float* g = gradient + (y * c.out_width + left) * out_pixel;
        for (int64_t at = left; at < right; ++at, x += c.stride * pixel, g += out_pixel)
          for (int r = 0; r < Registers; ++r) {
            Simd value[Inputs];
            for (int i = 0; i < Inputs; ++i)
              value[i] = in_register(load(x + i * c.batch + r * kLanes));
            for (int o = 0; o < Outputs; ++o) {
              const Simd factor = in_register(load(g + o * c.batch + r * kLanes));
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

}  // namespace

// What the batch is a multiple of.
KERNEL(lanes, int64_t* count) { *count = kLanes; }

// images: [height, width, inputs, batch]; weights: [outputs, inputs, kernel, kernel];
// results: [out_height, out_width, outputs, batch].
KERNEL(convolve, const ConvolutionSizes* sizes, const float* images, const float* weights,
       float* results, int threads) {
  const Convolution c{*sizes};
  const int64_t taps = c.taps();
  if (c.by_rows())
    return convolve_rows(
        c.images(images), c.padding,
        [=](int64_t o, int64_t i, int64_t k) { return weights[(o * c.inputs + i) * taps + k]; },
        c.results(results), threads);
#pragma omp parallel num_threads(threads)
  {
    std::vector<Term> terms;
#pragma omp for
    for (int64_t at = 0; at < c.out_height * c.out_width; ++at) {
      terms.clear();
      for (int64_t ky = 0; ky < c.kernel; ++ky)
        for (int64_t kx = 0; kx < c.kernel; ++kx) {
          const int64_t y = c.input_of(at / c.out_width, ky), x = c.input_of(at % c.out_width, kx);
          if (y >= 0 && y < c.height && x >= 0 && x < c.width)
            terms.push_back({y * c.width + x, ky * c.kernel + kx});
        }
      pixel(terms, c.inputs, c.outputs, c.batch, images, weights, taps, c.inputs * taps,
            results + at * c.outputs * c.batch);
    }
  }
}

// The gradient of the images, from that of the results.
KERNEL(convolve_images_gradient, const ConvolutionSizes* sizes, const float* gradient,
       const float* weights, float* images_gradient, int threads) {
  const Convolution c{*sizes};
  const int64_t last = c.taps() - 1;  // of the taps, which are read backwards
  if (c.by_rows())
    return convolve_rows(
        c.results(gradient), c.kernel - 1 - c.padding,
        [=](int64_t i, int64_t o, int64_t k) {
          return weights[(o * c.inputs + i) * (last + 1) + last - k];
        },
        c.images(images_gradient), threads);
#pragma omp parallel num_threads(threads)
  {
    std::vector<Term> terms;
#pragma omp for
    for (int64_t at = 0; at < c.height * c.width; ++at) {
      terms.clear();
      for (int64_t ky = 0; ky < c.kernel; ++ky)
        for (int64_t kx = 0; kx < c.kernel; ++kx) {
          const int64_t y = c.output_of(at / c.width, ky, c.out_height);
          const int64_t x = c.output_of(at % c.width, kx, c.out_width);
          if (y >= 0 && x >= 0) terms.push_back({y * c.out_width + x, ky * c.kernel + kx});
        }
      pixel(terms, c.outputs, c.inputs, c.batch, gradient, weights, c.inputs * c.taps(), c.taps(),
            images_gradient + at * c.inputs * c.batch);
    }
  }
}

// The gradient of the weights: per sample for the first `samples` images, [samples, outputs,
// inputs, kernel, kernel], or if that is negative the sum over all. A few rows are treated at a
// time, so that they stay in the cache for all taps.
KERNEL(convolve_weights_gradient, const ConvolutionSizes* sizes, const float* images,
       const float* gradient, float* weights_gradient, int64_t samples, int threads) {
  constexpr int64_t kPixels = 32;
  const Convolution c{*sizes};
  const int64_t rows = tile_count(kPixels, c.out_width), filter = c.inputs * c.taps();
  const bool summed = samples < 0;
  if (summed && c.by_rows())
    return weights_gradient_of_rows(c.images(images), c.padding, c.results(gradient),
                                    weights_gradient, threads);
  const int64_t step = summed ? kLanes : c.batch;
#pragma omp parallel for num_threads(threads)
  for (int64_t index = 0; index < tile_count(c.outputs, 4); ++index)
    for_tile<4>(c.outputs, index, [&](auto outputs, int64_t o) {
      std::vector<float> sums(outputs * filter * step);
      for (int64_t y = 0; y < c.out_height; y += rows)
        for_each_tile<3>(c.inputs, [&](auto inputs, int64_t i) {
          const int64_t end = std::min(c.out_height, y + rows);
          const float* x = images + i * c.batch;
          const float* g = gradient + o * c.batch;
          float* to = sums.data() + i * c.taps() * step;
          if (summed)
            for_each_tile<3>(c.batch / kLanes, [&](auto some, int64_t r) {
              r *= kLanes;
              correlate<outputs, inputs, some>(c, x + r, g + r, y, end, to, step);
            });
          else
            for (int64_t r = 0; r < c.batch; r += kLanes)
              correlate<outputs, inputs, 1>(c, x + r, g + r, y, end, to + r, step);
        });
      for (int64_t w = 0; w < outputs * filter; ++w) {
        const float* sum = sums.data() + w * step;
        float* to = weights_gradient + o * filter + w;
        if (summed) *to = total(load(sum));
        for (int64_t image = 0; image < samples; ++image)
          to[image * c.outputs * filter] = sum[image];
      }
    });
}
