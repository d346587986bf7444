#include "lessons/03_column_linear/pass.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "src/comm/expect.hpp"
#include "src/core/philox.hpp"
#include "src/nn/part.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

HostTensor matrix(std::int64_t columns, const std::vector<double>& values, DType dtype) {
    const auto count = static_cast<std::int64_t>(values.size());
    return HostTensor::of(Shape{count / columns, columns}, values).as(dtype);
}

HostTensor whole_numbers(Shape shape, DType dtype, std::uint64_t seed,
                         const std::string& name) {
    constexpr double kLargest = 2;
    HostTensor tensor(shape, dtype);
    const RandomStream stream(seed, name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const double drawn = stream.uniform(static_cast<std::uint64_t>(i));
        tensor.set(i, std::floor(drawn * (2 * kLargest + 1)) - kLargest);
    }
    return tensor;
}

HostTensor transposed(const HostTensor& matrix) {
    const std::int64_t rows = matrix.shape().rows();
    const std::int64_t columns = matrix.shape().columns();
    HostTensor turned({columns, rows}, matrix.dtype());
    for (std::int64_t i = 0; i < matrix.elements(); ++i)
        turned.set(i % columns * rows + i / columns, matrix.at(i));
    return turned;
}

HostTensor columns_of_rank(const HostTensor& matrix, int rank, int ranks) {
    const std::int64_t count = matrix.shape().columns() / ranks;
    return shard_of(matrix, column_part(matrix.shape(), rank * count, count));
}

HostTensor side_by_side(const std::vector<HostTensor>& matrices) {
    std::int64_t all = 0;
    for (const HostTensor& matrix : matrices)
        all += matrix.shape().columns();
    HostTensor whole(matrices.front().shape().with_last(all), matrices.front().dtype());
    std::int64_t from = 0;
    for (const HostTensor& matrix : matrices) {
        const std::int64_t count = matrix.shape().columns();
        put_shard(whole, matrix, column_part(whole.shape(), from, count));
        from += count;
    }
    return whole;
}

HostTensor sum_of(const std::vector<HostTensor>& matrices) {
    HostTensor sum(matrices.front().shape(), matrices.front().dtype());
    for (const HostTensor& matrix : matrices)
        for (std::int64_t i = 0; i < sum.elements(); ++i)
            sum.set(i, sum.at(i) + matrix.at(i));
    return sum;
}

std::int64_t differing(const HostTensor& a, const HostTensor& b) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < a.elements(); ++i)
        if (!(a.at(i) == b.at(i))) ++count;
    return count;
}

std::string number(double value) {
    const double rounded = std::round(value * 100) / 100;
    return fmt::format("{:.6g}", rounded == 0 ? 0 : rounded);
}

namespace {

constexpr std::int64_t kMostRows = 8;
constexpr std::int64_t kMostColumns = 5;
constexpr std::int64_t kColumnsOfWide = 4;

/// The name, the shape, and a line a row, all as wide.
std::vector<std::string> block(const std::string& name, const HostTensor& matrix) {
    const std::int64_t columns = matrix.shape().columns();
    const std::int64_t shown = columns > kMostColumns ? kColumnsOfWide : columns;
    std::vector<std::string> lines{name, matrix.shape().text()};
    for (std::int64_t row = 0; row < matrix.shape().rows(); ++row) {
        std::string line;
        for (std::int64_t column = 0; column < shown; ++column)
            line += fmt::format("{:>4}", number(matrix.at(row * columns + column)));
        if (shown < columns) line += " ...";
        lines.push_back(line);
        if (row + 1 < kMostRows) continue;
        if (row + 1 < matrix.shape().rows()) lines.emplace_back("  ...");
        break;
    }
    int width = 0;
    for (const std::string& line : lines)
        width = std::max(width, columns_of(line));
    for (std::string& line : lines)
        line = pad_right(line, width);
    return lines;
}

}  // namespace

std::string matrices_text(
    const std::vector<std::pair<std::string, HostTensor>>& matrices) {
    constexpr const char* kGap = "   ";
    std::vector<std::vector<std::string>> blocks;
    std::size_t height = 0;
    for (const auto& [name, matrix] : matrices) {
        blocks.push_back(block(name, matrix));
        height = std::max(height, blocks.back().size());
    }
    std::string text;
    for (std::size_t row = 0; row < height; ++row) {
        std::string line;
        for (const std::vector<std::string>& lines : blocks)
            line += kGap + (row < lines.size() ? lines[row]
                                               : pad_right("", columns_of(lines[0])));
        line.erase(line.find_last_not_of(' ') + 1);
        text += (text.empty() ? "" : "\n") + line;
    }
    return text;
}

namespace {

HostTensor held_by(const Rank& rank, const HostTensor& whole, bool own_columns) {
    return own_columns ? columns_of_rank(whole, rank.index(), rank.size()) : whole;
}

}  // namespace

RunReport pass(Cluster& cluster, const Task& task) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = task.regions(rank);
        const auto model = task.make({device, task.x.dtype(), task.seed, ""}, *tp);
        load_parameters(model->parameters(), task.weights);
        const auto keep = [&](const std::string& name, const Tensor& tensor) {
            if (task.keeps) rank.keep(name, tensor);
        };
        const auto keep_all = [&](const std::string& prefix, Tensor Parameter::*tensor) {
            for (const Parameter* parameter : model->parameters())
                if (task.keeps)
                    rank.keep(prefix + parameter->name(), parameter->*tensor,
                              parameter->part());
        };
        keep_all("initial/", &Parameter::value);
        const Tensor x = device.upload(held_by(rank, task.x, task.own_columns_of_x));
        const Tensor dy = device.upload(held_by(rank, task.dy, task.own_columns_of_dy));

        Saved saved;
        {
            const PhaseScope phase(device, Phase::forward);
            const ByteCount sent(rank.world());
            keep("y", model->forward(x, saved));
            rank.keep_value("forward", static_cast<double>(sent.bytes()));
        }
        {
            const PhaseScope phase(device, Phase::backward);
            const ByteCount sent(rank.world());
            keep("dx", model->backward(dy, saved));
            rank.keep_value("backward", static_cast<double>(sent.bytes()));
        }
        keep_all("grad/", &Parameter::gradient);
    });
}

const HostTensor& kept(const RunReport& report, int rank, const std::string& name) {
    return report.ranks[rank].kept.at(name);
}

std::vector<HostTensor> kept_by_all(const RunReport& report, const std::string& name) {
    std::vector<HostTensor> tensors;
    for (const RankReport& rank : report.ranks)
        tensors.push_back(rank.kept.at(name));
    return tensors;
}

std::int64_t bytes_of_half(const RunReport& report, int rank, const std::string& half) {
    return static_cast<std::int64_t>(report.ranks[rank].series.at(half).at(0));
}

NamedTensors whole_gradients(const RunReport& report) {
    NamedTensors whole;
    for (auto& [name, tensor] : kept_under(report, "grad/"))
        whole.emplace("grad/" + name, std::move(tensor));
    return whole;
}

std::int64_t differing_side_by_side(const RunReport& together, const RunReport& alone,
                                    const std::string& name) {
    return differing(side_by_side(kept_by_all(together, name)), kept(alone, 0, name));
}

std::int64_t differing_on_any(const RunReport& together, const HostTensor& expected,
                              const std::string& name) {
    std::int64_t count = 0;
    for (const HostTensor& whole : kept_by_all(together, name))
        count += differing(whole, expected);
    return count;
}

std::int64_t differing_gradients(const RunReport& together, const RunReport& alone) {
    std::int64_t count = 0;
    for (const auto& [name, whole] : whole_gradients(together))
        count += differing(whole, kept(alone, 0, name));
    return count;
}

}  // namespace lockstep::lessons
