// Instance normalisation of channels-last images, forward and backward.
//
// An image is `pixels` pixels of `channels` floats each. A lane is a channel of one of the few
// neighbouring pixels that together fill whole vector registers, so that ten channels are read as
// forty lanes and no register stays half empty. Sums are taken per lane, in blocks of rows so that
// rounding stays small, and then folded into sums per channel. Images are independent of one
// another: the result does not depend on the number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

constexpr int64_t kRegister = 8;  // floats
constexpr int64_t kBlock = 32;    // rows summed before they join the total

struct Shape {
  int64_t pixels, channels, repeats, lanes, rows;

  Shape(int64_t pixels, int64_t channels) : pixels(pixels), channels(channels), repeats(1) {
    while (channels * repeats % kRegister != 0) repeats *= 2;
    if (pixels % repeats != 0) repeats = 1;
    lanes = channels * repeats;
    rows = pixels / repeats;
  }
};

// total[lane] = sum of term(i, lane) over all places i of the lane's channel.
template <class Term>
void channel_sums(const Shape& shape, float* __restrict total, float* __restrict block,
                  Term term) {
  std::fill(total, total + shape.lanes, 0.0f);
  for (int64_t begin = 0; begin < shape.rows; begin += kBlock) {
    const int64_t end = std::min(shape.rows, begin + kBlock);
    std::fill(block, block + shape.lanes, 0.0f);
    for (int64_t row = begin; row < end; ++row)
      for (int64_t lane = 0; lane < shape.lanes; ++lane)
        block[lane] += term(row * shape.lanes + lane, lane);
    for (int64_t lane = 0; lane < shape.lanes; ++lane) total[lane] += block[lane];
  }
  for (int64_t lane = shape.channels; lane < shape.lanes; ++lane)
    total[lane % shape.channels] += total[lane];
  for (int64_t lane = shape.channels; lane < shape.lanes; ++lane)
    total[lane] = total[lane - shape.channels];
}

// out[i] = term(i, lane) at every place.
template <class Term>
void fill_lanes(const Shape& shape, float* __restrict out, Term term) {
  for (int64_t row = 0; row < shape.rows; ++row)
    for (int64_t lane = 0; lane < shape.lanes; ++lane)
      out[row * shape.lanes + lane] = term(row * shape.lanes + lane, lane);
}

}  // namespace

// x, y: [images, pixels, channels]; weight, bias: [channels] or null;
// mean, inverse (of the standard deviation): [images, channels], kept for the gradient.
extern "C" void instance_norm(const float* x, const float* weight, const float* bias, float* y,
                              float* mean, float* inverse, int64_t images, int64_t pixels,
                              int64_t channels, float epsilon, int threads) {
  const Shape shape(pixels, channels);
#pragma omp parallel num_threads(threads)
  {
    std::vector<float> buffer(4 * shape.lanes);
    float* centre = buffer.data();
    float* scale = centre + shape.lanes;
    float* shift = scale + shape.lanes;
    float* block = shift + shape.lanes;
#pragma omp for
    for (int64_t image = 0; image < images; ++image) {
      const float* in = x + image * pixels * channels;
      channel_sums(shape, centre, block, [=](int64_t i, int64_t) { return in[i]; });
      for (int64_t lane = 0; lane < shape.lanes; ++lane) centre[lane] /= pixels;
      channel_sums(shape, scale, block, [=](int64_t i, int64_t lane) {
        const float difference = in[i] - centre[lane];
        return difference * difference;
      });
      for (int64_t lane = 0; lane < shape.lanes; ++lane) {
        const int64_t channel = lane % channels;
        const float inverted = 1.0f / std::sqrt(scale[lane] / pixels + epsilon);
        mean[image * channels + channel] = centre[lane];
        inverse[image * channels + channel] = inverted;
        scale[lane] = weight ? inverted * weight[channel] : inverted;
        shift[lane] = bias ? bias[channel] : 0.0f;
      }
      fill_lanes(shape, y + image * pixels * channels, [=](int64_t i, int64_t lane) {
        return (in[i] - centre[lane]) * scale[lane] + shift[lane];
      });
    }
  }
}

// With n = (x - mean) / deviation and g the gradient of y: the gradients of weight and bias are
// the sums of g n and of g, and that of x is weight / deviation (g - mean of g - n mean of g n).
// weight_gradient, bias_gradient: [images, channels], of each image by itself.
extern "C" void instance_norm_gradient(const float* gradient, const float* x, const float* weight,
                                       const float* mean, const float* inverse, float* x_gradient,
                                       float* weight_gradient, float* bias_gradient,
                                       int64_t images, int64_t pixels, int64_t channels,
                                       int threads) {
  const Shape shape(pixels, channels);
#pragma omp parallel num_threads(threads)
  {
    std::vector<float> buffer(5 * shape.lanes);
    float* centre = buffer.data();
    float* by_x = centre + shape.lanes;
    float* constant = by_x + shape.lanes;
    float* scale = constant + shape.lanes;
    float* block = scale + shape.lanes;
#pragma omp for
    for (int64_t image = 0; image < images; ++image) {
      const float* in = x + image * pixels * channels;
      const float* g = gradient + image * pixels * channels;
      for (int64_t lane = 0; lane < shape.lanes; ++lane)
        centre[lane] = mean[image * channels + lane % channels];
      channel_sums(shape, constant, block, [=](int64_t i, int64_t) { return g[i]; });
      channel_sums(shape, by_x, block,
                   [=](int64_t i, int64_t lane) { return g[i] * (in[i] - centre[lane]); });
      for (int64_t lane = 0; lane < shape.lanes; ++lane) {
        const int64_t channel = lane % channels;
        const float inverted = inverse[image * channels + channel];
        weight_gradient[image * channels + channel] = by_x[lane] * inverted;
        bias_gradient[image * channels + channel] = constant[lane];
        scale[lane] = weight ? inverted * weight[channel] : inverted;
        by_x[lane] *= -scale[lane] * inverted * inverted / pixels;
        constant[lane] *= -scale[lane] / pixels;
      }
      fill_lanes(shape, x_gradient + image * pixels * channels, [=](int64_t i, int64_t lane) {
        return scale[lane] * g[i] + by_x[lane] * (in[i] - centre[lane]) + constant[lane];
      });
    }
  }
}
