#include "lessons/02_column_linear/matrices.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "src/core/philox.hpp"
#include "src/nn/part.hpp"

namespace lockstep::lessons {

HostTensor matrix(std::int64_t columns, const std::vector<double>& values,
                  DType dtype) {
    const auto count = static_cast<std::int64_t>(values.size());
    return HostTensor::of(Shape{count / columns, columns}, values)
        .as(dtype);
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

HostTensor normal_numbers(Shape shape, DType dtype, std::uint64_t seed,
                          const std::string& name) {
    HostTensor tensor(shape, dtype);
    const RandomStream stream(seed, name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, stream.normal(static_cast<std::uint64_t>(i)));
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
    return shard_of(matrix,
                    column_part(matrix.shape(), rank * count, count));
}

HostTensor side_by_side(const std::vector<HostTensor>& matrices) {
    std::int64_t all = 0;
    for (const HostTensor& matrix : matrices)
        all += matrix.shape().columns();
    HostTensor whole(matrices.front().shape().with_last(all),
                     matrices.front().dtype());
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
std::vector<std::string> block(const std::string& name,
                               const HostTensor& matrix) {
    const std::int64_t columns = matrix.shape().columns();
    const std::int64_t shown =
        columns > kMostColumns ? kColumnsOfWide : columns;
    std::vector<std::string> lines{name, matrix.shape().text()};
    for (std::int64_t row = 0; row < matrix.shape().rows(); ++row) {
        std::string line;
        for (std::int64_t column = 0; column < shown; ++column)
            line += fmt::format("{:>4}",
                                number(matrix.at(row * columns + column)));
        if (shown < columns) line += " ...";
        lines.push_back(line);
        if (row + 1 < kMostRows) continue;
        if (row + 1 < matrix.shape().rows()) lines.emplace_back("  ...");
        break;
    }
    std::size_t width = 0;
    for (const std::string& line : lines)
        width = std::max(width, line.size());
    for (std::string& line : lines)
        line.resize(width, ' ');
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
            line += kGap + (row < lines.size()
                                ? lines[row]
                                : std::string(lines[0].size(), ' '));
        line.erase(line.find_last_not_of(' ') + 1);
        text += (text.empty() ? "" : "\n") + line;
    }
    return text;
}

}  // namespace lockstep::lessons
