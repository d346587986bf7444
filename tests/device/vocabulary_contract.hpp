#pragma once

#include <algorithm>

#include "tests/device/loss_contract.hpp"

namespace lockstep::test {

/// Sharded logits; the whole is (rows, columns). Shard k has the columns from k * extent
/// on, and padding beyond the vocabulary.
class DealtLogits {
  public:
    DealtLogits(Bench& bench, const HostTensor& logits, std::int64_t extent, int shards)
        : bench_(bench), rows_(logits.shape().matrix_rows()), dtype_(logits.dtype()) {
        const std::int64_t whole = logits.shape().columns();
        for (int k = 0; k < shards; ++k) {
            HostTensor part({rows_, extent}, dtype_);
            for (std::int64_t i = 0; i < rows_; ++i)
                for (std::int64_t j = 0; j < extent; ++j) {
                    const std::int64_t entry = k * extent + j;
                    // Padding may have any value; it must not change results.
                    const double padding = j % 2 == 0 ? 1e30 : NAN;
                    part.set(i * extent + j,
                             entry < whole ? logits.at(i * whole + entry) : padding);
                }
            parts_.push_back(bench->upload(part));
            shards_.push_back({k * extent, whole});
        }
    }

    int count() const { return static_cast<int>(parts_.size()); }
    const Tensor& logits(int k) const { return parts_[static_cast<std::size_t>(k)]; }
    const VocabularyShard& shard(int k) const {
        return shards_[static_cast<std::size_t>(k)];
    }

    /// Returns the result of an all-reduce of all shards' maxima.
    Tensor maximum() const {
        const Tensor most = bench_->empty({rows_}, dtype_);
        bench_->fill(most, -INFINITY);
        for (int k = 0; k < count(); ++k)
            bench_->combine(most, bench_->row_maximum(logits(k), shard(k)),
                            Reduction::maximum);
        return most;
    }
    /// Returns the result of an all-reduce of the parts of all shards.
    Tensor parts(const Tensor& targets, const Tensor& most) const {
        const Tensor sums = bench_->zeros({2, rows_}, dtype_);
        for (int k = 0; k < count(); ++k)
            bench_->add(sums,
                        bench_->cross_entropy_parts(logits(k), targets, most, shard(k)));
        return sums;
    }

  private:
    Bench& bench_;
    std::int64_t rows_;
    DType dtype_;
    std::vector<Tensor> parts_;
    std::vector<VocabularyShard> shards_;
};

TEST_CASE("Cross entropy by shards of the vocabulary equals that of the whole", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t rows = GENERATE(1, 5);
    const std::int64_t vocabulary = GENERATE(1, 7, 50, 9001);
    const int shards = GENERATE(1, 2, 4);
    const std::int64_t padding = GENERATE(0, 3);
    const double largest = GENERATE(2.0, 1e4);
    CAPTURE(rows, vocabulary, shards, padding, largest);
    Bench bench;
    const std::int64_t extent = (vocabulary + shards - 1) / shards + padding;
    const HostTensor x = random_values({rows, vocabulary}, dtype, "x", -largest, largest);
    const HostTensor ids = random_indices({rows}, vocabulary, "ids");
    const Tensor targets = bench->upload(ids);
    const DealtLogits dealt(bench, x, extent, shards);

    const Tensor most = dealt.maximum();
    const Tensor parts = dealt.parts(targets, most);
    Expected losses({rows}, dtype);
    std::vector<Expected> d_logits(static_cast<std::size_t>(shards),
                                   Expected({rows, extent}, dtype));
    const auto size = static_cast<double>(vocabulary);
    for (std::int64_t i = 0; i < rows; ++i) {
        const LogSoftmax reference(x, i);
        REQUIRE(bench->download(most).at(i) == reference.most);
        const auto target = static_cast<std::int64_t>(ids.at(i));
        const double loss = -reference.log_probability(x.at(i * vocabulary + target));
        losses.add(loss, loss + 1, size);
        for (std::int64_t j = 0; j < shards * extent; ++j) {
            Expected& shard = d_logits[static_cast<std::size_t>(j / extent)];
            if (j >= vocabulary) {
                shard.add(0, 0);
                continue;
            }
            const double exponent = reference.log_probability(x.at(i * vocabulary + j));
            const double p = std::exp(exponent);
            const double hot = j == target ? 1 : 0;
            shard.add(-3 * (p - hot), 3 * (p * (2 + std::abs(exponent)) + hot), size);
        }
    }
    losses.check(bench->download(bench->cross_entropy_of_parts(most, parts)));
    for (int k = 0; k < shards; ++k)
        d_logits[static_cast<std::size_t>(k)].check(
            bench->download(bench->cross_entropy_backward_of_parts(
                dealt.logits(k), targets, most, parts, -3, dealt.shard(k))));
}

TEST_CASE(
    "A shard's parts are its own sum of exponentials, and the logit of its own "
    "targets",
    kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor x = random_values({3, 20}, dtype, "x", -2, 2);
    const Tensor targets =
        bench->upload(HostTensor::of<std::int32_t>({3}, std::vector{0, 12, 19}));
    const DealtLogits dealt(bench, x, 10, 2);
    const Tensor most = dealt.maximum();
    const HostTensor got = bench->download(
        bench->cross_entropy_parts(dealt.logits(1), targets, most, dealt.shard(1)));
    Expected expected({2, 3}, dtype);
    for (std::int64_t i = 0; i < 3; ++i) {
        Sum sum;
        for (std::int64_t j = 10; j < 20; ++j)
            sum.add(std::exp(x.at(i * 20 + j) - bench->download(most).at(i)));
        expected.add(sum.value, 5 * sum.value, 10);
    }
    for (const std::int64_t at : {std::int64_t{-1}, std::int64_t{32}, std::int64_t{59}})
        expected.add(at < 0 ? 0 : x.at(at), 0);
    expected.check(got);
}

TEST_CASE("A shard with only padding adds nothing", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t columns = GENERATE(0, 1, 16, 37);
    const VocabularyShard shard{40, GENERATE(5, 40)};
    const double value = GENERATE(NAN, 7.0);
    CAPTURE(columns, shard.whole, value);
    Bench bench;
    const Tensor logits = bench->empty({2, columns}, dtype);
    bench->fill(logits, value);
    const Tensor targets =
        bench->upload(HostTensor::of<std::int32_t>({2}, std::vector{0, 4}));
    const HostTensor most = bench->download(bench->row_maximum(logits, shard));
    REQUIRE(most.shape() == Shape{2});
    REQUIRE(most.at(0) == -INFINITY);
    REQUIRE(most.at(1) == -INFINITY);

    const Tensor maximum = bench->zeros({2}, dtype);
    const Tensor parts = bench->cross_entropy_parts(logits, targets, maximum, shard);
    REQUIRE(bench->download(parts) == HostTensor({2, 2}, dtype));
    bench->fill(parts, 1);
    const Tensor gradient =
        bench->cross_entropy_backward_of_parts(logits, targets, maximum, parts, 2, shard);
    REQUIRE(bench->download(gradient) == HostTensor({2, columns}, dtype));
}

TEST_CASE("NaN logits give the same through shards as through the whole", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    HostTensor x = random_values({3, 12}, dtype, "x");
    x.set(5, NAN);
    for (std::int64_t j = 0; j < 12; ++j)
        x.set(12 + j, -INFINITY);
    x.set(24 + 7, -INFINITY);
    const Tensor targets =
        bench->upload(HostTensor::of<std::int32_t>({3}, std::vector{1, 1, 7}));
    const DealtLogits dealt(bench, x, 4, 3);
    const Tensor most = dealt.maximum();
    const HostTensor losses =
        bench->download(bench->cross_entropy_of_parts(most, dealt.parts(targets, most)));
    REQUIRE(std::isnan(losses.at(0)));
    REQUIRE(std::isnan(losses.at(1)));
    REQUIRE(losses.at(2) == INFINITY);
}

TEST_CASE("A target outside the whole vocabulary is named by each shard", kTags) {
    const std::int32_t wrong = GENERATE(-1, 10, 11);
    Bench bench;
    const Tensor logits = bench->zeros({2, 4}, DType::f32);
    const Tensor maximum = bench->zeros({2}, DType::f32);
    const Tensor parts = bench->zeros({2, 2}, DType::f32);
    const Tensor targets =
        bench->upload(HostTensor::of<std::int32_t>({2}, std::vector{9, wrong}));
    const std::string sentence = fmt::format(": index 1 is {}, outside [0, 10)", wrong);
    for (const std::int64_t first : {0, 8}) {
        const VocabularyShard shard{first, 10};
        refuses("cross_entropy_parts" + sentence,
                [&] { bench->cross_entropy_parts(logits, targets, maximum, shard); });
        refuses("cross_entropy_backward_of_parts" + sentence, [&] {
            bench->cross_entropy_backward_of_parts(logits, targets, maximum, parts, 1,
                                                   shard);
        });
    }
    refuses("cross_entropy_parts: index 0 is 9, outside [0, 0)", [&] {
        bench->cross_entropy_parts(bench->empty({2, 0}, DType::f32), targets, maximum);
    });
}

}  // namespace lockstep::test
