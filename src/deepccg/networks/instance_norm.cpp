// Instance normalisation of images side by side (simd.h), forward and backward, with what follows
// it in a residual block: relu((x - mean) / deviation * weight + bias + residual).
//
// A lane is a channel of an image. Sums are taken in blocks of pixels, so that rounding stays
// small, and a few registers of lanes at a time, so that their pixels stay in the cache.

#include "simd.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

constexpr int64_t kBlock = 32;    // pixels summed before they join the total
constexpr int kRegisters = 4;     // of lanes that are treated at once

template <int Count>
struct Sums {
  Lanes lanes[Count];

  Sums() {
    for (Lanes& lane : lanes) lane = all(0);
  }
  void operator+=(const Sums& other) {
    for (int r = 0; r < Count; ++r) lanes[r] += other.lanes[r];
  }
};

// add(pixel, some, others): adds a pixel's terms to sums, of which there may be two.
template <int Count, class Add>
void add_up(int64_t pixels, Sums<Count>& some, Sums<Count>& others, Add add) {
  for (int64_t begin = 0; begin < pixels; begin += kBlock) {
    Sums<Count> block, other;
    for (int64_t p = begin; p < std::min(pixels, begin + kBlock); ++p) add(p, block, other);
    some += block;
    others += other;
  }
}

}  // namespace

struct Norm {
  int64_t pixels, channels, batch;
  int64_t lanes() const { return channels * batch; }
};

// x, y: [pixels, channels, batch]; weight, bias: [channels] or null; residual: as x, or null;
// moments: means and inverse deviations, [2, channels, batch], kept for the gradient.
extern "C" void instance_norm(const Norm* shape, const float* x, const float* weight,
                              const float* bias, const float* residual, float* y, float* moments,
                              float epsilon, int relu, int threads) {
  const Norm n = *shape;
  const int64_t registers = n.lanes() / kLanes;
#pragma omp parallel for num_threads(threads)
  for (int64_t index = 0; index < pieces(registers, kRegisters); ++index)
    piece<kRegisters>(registers, index, [&](auto count, int64_t first) {
      const float* in = x + first * kLanes;
      Sums<count> mean, scale, shift, unused;
      add_up(n.pixels, mean, unused, [&](int64_t p, auto& sum, auto&) {
        for (int r = 0; r < count; ++r) sum.lanes[r] += load(in + p * n.lanes() + r * kLanes);
      });
      for (Lanes& lane : mean.lanes) lane /= all(n.pixels);
      add_up(n.pixels, scale, unused, [&](int64_t p, auto& sum, auto&) {
        for (int r = 0; r < count; ++r) {
          const Lanes off = load(in + p * n.lanes() + r * kLanes) - mean.lanes[r];
          sum.lanes[r] += off * off;
        }
      });
      for (int r = 0; r < count; ++r) {
        const int64_t lane = (first + r) * kLanes, channel = lane / n.batch;
        for (int l = 0; l < kLanes; ++l)
          scale.lanes[r][l] = 1 / std::sqrt(scale.lanes[r][l] / n.pixels + epsilon);
        store(moments + lane, mean.lanes[r]);
        store(moments + n.lanes() + lane, scale.lanes[r]);
        if (weight) scale.lanes[r] *= all(weight[channel]);
        if (bias) shift.lanes[r] = all(bias[channel]);
      }
      for (int64_t p = 0; p < n.pixels; ++p)
        for (int r = 0; r < count; ++r) {
          const int64_t at = p * n.lanes() + (first + r) * kLanes;
          Lanes value = (load(x + at) - mean.lanes[r]) * scale.lanes[r] + shift.lanes[r];
          if (residual) value += load(residual + at);
          if (relu) value = value < all(0) ? all(0) : value;  // what is not a number stays so
          store(y + at, value);
        }
    });
}

// With n = (x - mean) / deviation and g the gradient before the ReLU, which is that of the
// residual: the gradients of weight and bias are the sums of g n and of g, and that of x is
// weight / deviation (g - mean of g - n mean of g n).
// y: what the ReLU gave, or null if there was none; residual_gradient: null if not wanted;
// of_each: gradients of weight and bias for each image by itself, [2, channels, batch];
// of_weight, of_bias: their sums, or null.
extern "C" void instance_norm_back(const Norm* shape, const float* gradient, const float* x,
                                   const float* y, const float* weight, const float* moments,
                                   float* x_gradient, float* residual_gradient,
                                   float* of_each, float* of_weight, float* of_bias,
                                   int threads) {
  const Norm n = *shape;
  const int64_t registers = n.lanes() / kLanes;
  float* kept = residual_gradient ? residual_gradient : x_gradient;  // holds g in between
#pragma omp parallel for num_threads(threads)
  for (int64_t index = 0; index < pieces(registers, kRegisters); ++index)
    piece<kRegisters>(registers, index, [&](auto count, int64_t first) {
      Sums<count> mean, scale, by_x, constant;
      for (int r = 0; r < count; ++r) mean.lanes[r] = load(moments + (first + r) * kLanes);
      add_up(n.pixels, by_x, constant, [&](int64_t p, auto& product, auto& sum) {
        for (int r = 0; r < count; ++r) {
          const int64_t at = p * n.lanes() + (first + r) * kLanes;
          Lanes g = load(gradient + at);
          if (y) g = load(y + at) > all(0) ? g : all(0);
          store(kept + at, g);
          product.lanes[r] += g * (load(x + at) - mean.lanes[r]);
          sum.lanes[r] += g;
        }
      });
      for (int r = 0; r < count; ++r) {
        const int64_t lane = (first + r) * kLanes;
        const Lanes inverse = load(moments + n.lanes() + lane);
        store(of_each + lane, by_x.lanes[r] * inverse);
        store(of_each + n.lanes() + lane, constant.lanes[r]);
        scale.lanes[r] = weight ? inverse * all(weight[lane / n.batch]) : inverse;
        by_x.lanes[r] *= -scale.lanes[r] * inverse * inverse / all(n.pixels);
        constant.lanes[r] *= -scale.lanes[r] / all(n.pixels);
      }
      for (int64_t p = 0; p < n.pixels; ++p)
        for (int r = 0; r < count; ++r) {
          const int64_t at = p * n.lanes() + (first + r) * kLanes;
          store(x_gradient + at, scale.lanes[r] * load(kept + at) + constant.lanes[r] +
                                     by_x.lanes[r] * (load(x + at) - mean.lanes[r]));
        }
    });
  if (!of_weight) return;
  for (int64_t channel = 0; channel < n.channels; ++channel) {
    const float* some = of_each + channel * n.batch;
    of_weight[channel] = std::accumulate(some, some + n.batch, 0.0f);
    of_bias[channel] = std::accumulate(some + n.lanes(), some + n.lanes() + n.batch, 0.0f);
  }
}
