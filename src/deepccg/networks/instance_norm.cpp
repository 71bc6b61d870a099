// Instance normalisation of images that lie batch last (simd.h), forward and backward, with what
// follows it in a residual block: relu((x - mean) / deviation * weight + bias + residual).
//
// A lane is a channel of an image. Sums are taken in blocks of pixels, so that rounding stays
// small, and a few registers at a time, so that their pixels stay in the cache.

#include "../core/kernel.h"
#include "simd.h"

#include <algorithm>
#include <cmath>
#include <numeric>

KERNEL_SIZES(NormSizes, pixels, channels, batch);

namespace {

struct Norm : NormSizes {
  int64_t lanes() const { return channels * batch; }
};

constexpr int64_t kBlock = 32;    // pixels summed before they join the total
constexpr int kRegisters = 4;     // treated at once

template <int Count>
struct Sums {
  Simd value[Count];

  Sums() {
    for (Simd& each : value) each = broadcast(0);
  }
  void operator+=(const Sums& other) {
    for (int r = 0; r < Count; ++r) value[r] += other.value[r];
  }
};

// Two sums over pixels, to which add(pixel, first, second) adds a pixel's terms.
template <int Count, class Add>
void accumulate(int64_t pixels, Sums<Count>& first, Sums<Count>& second, Add add) {
  for (int64_t begin = 0; begin < pixels; begin += kBlock) {
    Sums<Count> block_first, block_second;
    for (int64_t p = begin; p < std::min(pixels, begin + kBlock); ++p)
      add(p, block_first, block_second);
    first += block_first;
    second += block_second;
  }
}

}  // namespace

// x, y: [pixels, channels, batch]; weight, bias: [channels] or null; residual: as x, or null;
// moments: means and inverse deviations, [2, channels, batch], kept for the gradient.
KERNEL(instance_norm, const NormSizes* sizes, const float* x, const float* weight,
       const float* bias, const float* residual, float* y, float* moments, float epsilon, int relu,
       int threads) {
  const Norm n{*sizes};
  const int64_t registers = n.lanes() / kLanes;
#pragma omp parallel for num_threads(threads)
  for (int64_t index = 0; index < tile_count(registers, kRegisters); ++index)
    for_tile<kRegisters>(registers, index, [&](auto count, int64_t first) {
      const float* in = x + first * kLanes;
      Sums<count> mean, scale, shift, unused;
      accumulate(n.pixels, mean, unused, [&](int64_t p, auto& sum, auto&) {
        for (int r = 0; r < count; ++r) sum.value[r] += load(in + p * n.lanes() + r * kLanes);
      });
      for (Simd& each : mean.value) each /= broadcast(n.pixels);
      accumulate(n.pixels, scale, unused, [&](int64_t p, auto& sum, auto&) {
        for (int r = 0; r < count; ++r) {
          const Simd off = load(in + p * n.lanes() + r * kLanes) - mean.value[r];
          sum.value[r] += off * off;
        }
      });
      for (int r = 0; r < count; ++r) {
        const int64_t lane = (first + r) * kLanes, channel = lane / n.batch;
        for (int l = 0; l < kLanes; ++l)
          scale.value[r][l] = 1 / std::sqrt(scale.value[r][l] / n.pixels + epsilon);
        store(moments + lane, mean.value[r]);
        store(moments + n.lanes() + lane, scale.value[r]);
        if (weight) scale.value[r] *= broadcast(weight[channel]);
        if (bias) shift.value[r] = broadcast(bias[channel]);
      }
      for (int64_t p = 0; p < n.pixels; ++p)
        for (int r = 0; r < count; ++r) {
          const int64_t at = p * n.lanes() + (first + r) * kLanes;
          Simd value = (load(x + at) - mean.value[r]) * scale.value[r] + shift.value[r];
          if (residual) value += load(residual + at);
          if (relu) value = value < broadcast(0) ? broadcast(0) : value;  // keeps NaN
          store(y + at, value);
        }
    });
}

// With n = (x - mean) / deviation and g the gradient before the ReLU, which is that of the
// residual: the gradients of weight and bias are the sums of g n and of g, and that of x is
// weight / deviation (g - mean of g - n mean of g n).
// y: the result of the ReLU, or null if there was none; residual_gradient: null if not needed;
// sample_gradients: per-sample gradients of weight and bias, [2, channels, batch];
// weight_gradient, bias_gradient: their sums, or null.
KERNEL(instance_norm_gradient, const NormSizes* sizes, const float* gradient, const float* x,
       const float* y, const float* weight, const float* moments, float* x_gradient,
       float* residual_gradient, float* sample_gradients, float* weight_gradient,
       float* bias_gradient, int threads) {
  const Norm n{*sizes};
  const int64_t registers = n.lanes() / kLanes;
  float* kept = residual_gradient ? residual_gradient : x_gradient;  // holds g in between
#pragma omp parallel for num_threads(threads)
  for (int64_t index = 0; index < tile_count(registers, kRegisters); ++index)
    for_tile<kRegisters>(registers, index, [&](auto count, int64_t first) {
      Sums<count> mean, scale, by_x, constant;
      for (int r = 0; r < count; ++r) mean.value[r] = load(moments + (first + r) * kLanes);
      accumulate(n.pixels, by_x, constant, [&](int64_t p, auto& product, auto& sum) {
        for (int r = 0; r < count; ++r) {
          const int64_t at = p * n.lanes() + (first + r) * kLanes;
          Simd g = load(gradient + at);
          if (y) g = load(y + at) > broadcast(0) ? g : broadcast(0);
          store(kept + at, g);
          product.value[r] += g * (load(x + at) - mean.value[r]);
          sum.value[r] += g;
        }
      });
      for (int r = 0; r < count; ++r) {
        const int64_t lane = (first + r) * kLanes;
        const Simd inverse = load(moments + n.lanes() + lane);
        store(sample_gradients + lane, by_x.value[r] * inverse);
        store(sample_gradients + n.lanes() + lane, constant.value[r]);
        scale.value[r] = weight ? inverse * broadcast(weight[lane / n.batch]) : inverse;
        by_x.value[r] *= -scale.value[r] * inverse * inverse / broadcast(n.pixels);
        constant.value[r] *= -scale.value[r] / broadcast(n.pixels);
      }
      for (int64_t p = 0; p < n.pixels; ++p)
        for (int r = 0; r < count; ++r) {
          const int64_t at = p * n.lanes() + (first + r) * kLanes;
          store(x_gradient + at, scale.value[r] * load(kept + at) + constant.value[r] +
                                     by_x.value[r] * (load(x + at) - mean.value[r]));
        }
    });
  if (!weight_gradient) return;
  for (int64_t channel = 0; channel < n.channels; ++channel) {
    const float* own = sample_gradients + channel * n.batch;
    weight_gradient[channel] = std::accumulate(own, own + n.batch, 0.0f);
    bias_gradient[channel] = std::accumulate(own + n.lanes(), own + n.lanes() + n.batch, 0.0f);
  }
}
