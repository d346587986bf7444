#include "src/report/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/report/record.hpp"
#include "src/text/json.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

/// The distance from 1 to the next number.
double epsilon_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return std::numeric_limits<float>::epsilon();
        case DType::f64:
            return std::numeric_limits<double>::epsilon();
        case DType::bf16:
            return Bf16::kEpsilon;
        case DType::i32:
            return 0;
    }
    return 0;
}

DType less_precise(DType a, DType b) {
    return epsilon_of(a) < epsilon_of(b) ? b : a;
}

/// The rule for the bounds on the differences of tensors.
struct BoundRule {
    std::optional<double> given;
    DType least = DType::f64;  ///< the less precise dtype of the two runs
    std::int64_t sum_length = 1;

    double bound(DType a, DType b) const {
        if (!is_floating(a)) return 0;
        return given ? *given
                     : sum_bound(less_precise(least, less_precise(a, b)), sum_length);
    }
};

std::string problem_of(const HostTensor& a, const HostTensor& b) {
    if (a.shape() != b.shape())
        return fmt::format("shapes {} and {}", a.shape().text(), b.shape().text());
    if (is_floating(a.dtype()) != is_floating(b.dtype()))
        return fmt::format("dtypes {} and {}", name_of(a.dtype()), name_of(b.dtype()));
    return "";
}

/// Compares the tensors element by element. Stops at the first NaN, which counts as the
/// largest difference.
void measure(const HostTensor& a, const HostTensor& b, TensorDifference& result) {
    double scale = 0;
    for (std::int64_t i = 0; i < a.elements(); ++i) {
        const double x = a.at(i);
        const double y = b.at(i);
        for (const double value : {x, y})
            if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
        const double difference = x == y ? 0 : std::abs(x - y);
        if (i > 0 && difference <= result.largest_absolute) continue;
        result.largest_absolute = difference;
        result.at = i;
        result.a = x;
        result.b = y;
        if (std::isnan(difference)) break;
    }
    // Without a difference the result is 0: the division might be 0 / 0.
    result.largest_relative =
        result.largest_absolute == 0 ? 0 : result.largest_absolute / scale;
}

TensorDifference judged(TensorDifference result, const HostTensor& a, const HostTensor& b,
                        const BoundRule& rule) {
    result.bound = rule.bound(a.dtype(), b.dtype());
    if (!result.problem.empty()) return result;
    result.passed = result.largest_relative <= result.bound;
    if (result.bound == 0 && result.passed && a.dtype() == b.dtype() && a != b) {
        result.passed = false;
        result.problem = "equal values with different bits (0 and -0)";
    }
    return result;
}

TensorDifference missing(const std::string& name, const HostTensor& tensor,
                         const char* where) {
    TensorDifference result;
    result.name = name;
    result.shape = tensor.shape();
    result.problem = where;
    return result;
}

Comparison compare(const NamedTensors& a, const NamedTensors& b, const BoundRule& rule) {
    std::set<std::string> names;
    for (const auto& [name, tensor] : a)
        names.insert(name);
    for (const auto& [name, tensor] : b)
        names.insert(name);
    Comparison comparison;
    for (const std::string& name : names) {
        const auto in_a = a.find(name);
        const auto in_b = b.find(name);
        if (in_a == a.end())
            comparison.tensors.push_back(missing(name, in_b->second, "only in B"));
        else if (in_b == b.end())
            comparison.tensors.push_back(missing(name, in_a->second, "only in A"));
        else
            comparison.tensors.push_back(
                judged(compare_tensor(name, in_a->second, in_b->second), in_a->second,
                       in_b->second, rule));
    }
    return comparison;
}

std::vector<OptionDifference> differences(const RunOptions& a, const RunOptions& b) {
    std::vector<OptionDifference> all{
        {"lesson", a.lesson, b.lesson},
        {"ranks", std::to_string(a.ranks), std::to_string(b.ranks)},
        {"dtype", std::string(name_of(a.dtype)), std::string(name_of(b.dtype))},
        {"seed", std::to_string(a.seed), std::to_string(b.seed)}};
    std::erase_if(all,
                  [](const OptionDifference& option) { return option.a == option.b; });
    return all;
}

}  // namespace

bool Comparison::passed() const {
    return !tensors.empty() &&
           std::ranges::all_of(tensors,
                               [](const TensorDifference& t) { return t.passed; });
}

double sum_bound(DType dtype, std::int64_t length) {
    // Sums of bf16 are computed in f32 and rounded once.
    if (dtype == DType::bf16) length = 1;
    return 8 * std::sqrt(static_cast<double>(length)) * epsilon_of(dtype);
}

TensorDifference compare_tensor(const std::string& name, const HostTensor& a,
                                const HostTensor& b) {
    TensorDifference result;
    result.name = name;
    result.shape = a.shape();
    result.problem = problem_of(a, b);
    if (result.problem.empty()) measure(a, b, result);
    return result;
}

Comparison compare_tensors(const NamedTensors& a, const NamedTensors& b,
                           std::optional<double> bound) {
    return compare(a, b, {bound, DType::f64, 1});
}

namespace {

/// If a mistake ended a run, the tensors that it kept before are not its results.
void require_finished(const std::filesystem::path& folder) {
    require(!std::filesystem::exists(folder / "diagnosis.txt"), [&] {
        return folder.string() +
               ": a mistake ended this run early, so there is nothing to compare; see "
               "diagnosis.txt in this folder";
    });
}

void require_numbers(const std::filesystem::path& folder, const RunOptions& options) {
    const auto numerics = options.settings.find("numerics");
    require(numerics == options.settings.end() || numerics->second != "off", [&] {
        return folder.string() +
               ": this run computed shapes only (numerics=off), so there are no numbers "
               "to compare";
    });
}

}  // namespace

Comparison compare_records(const std::filesystem::path& a, const std::filesystem::path& b,
                           std::optional<double> bound) {
    const RunOptions options_a = read_run_options(a);
    const RunOptions options_b = read_run_options(b);
    require_finished(a);
    require_finished(b);
    require_numbers(a, options_a);
    require_numbers(b, options_b);
    const BoundRule rule{bound, less_precise(options_a.dtype, options_b.dtype),
                         std::max(options_a.sum_length, options_b.sum_length)};
    Comparison comparison = compare(read_safetensors(a / "outputs.safetensors"),
                                    read_safetensors(b / "outputs.safetensors"), rule);
    comparison.differs = differences(options_a, options_b);
    return comparison;
}

namespace {

/// "[1, 4]" for row-major index 9 of shape (2, 5); "" for a scalar.
std::string place_text(const Shape& shape, std::int64_t index) {
    std::string text;
    for (int d = shape.dimensions() - 1; d >= 0; --d) {
        text.insert(0, std::to_string(index % shape[d]) + (text.empty() ? "" : ", "));
        index /= shape[d];
    }
    return text.empty() ? "" : "[" + text + "]";
}

std::string figure_text(double value) {
    return value == 0 ? "0" : fmt::format("{:.2e}", value);
}

/// Returns a line that says what is wrong with the tensor; empty if nothing is.
std::string details(const TensorDifference& tensor) {
    if (tensor.passed) return "";
    if (!tensor.problem.empty()) return "        " + tensor.problem + "\n";
    return fmt::format("        at {}: {} in A, {} in B\n",
                       place_text(tensor.shape, tensor.at), tensor.a, tensor.b);
}

/// Returns the verdict on all tensors, and the largest relative difference.
std::string summary(const std::vector<TensorDifference>& tensors) {
    const auto failed = std::ranges::count_if(
        tensors, [](const TensorDifference& t) { return !t.passed; });
    const std::string count =
        fmt::format("{} tensor{}: ", tensors.size(), tensors.size() == 1 ? "" : "s");
    if (failed > 0) return fmt::format("{}{} FAILED.\n", count, failed);
    const TensorDifference& largest =
        *std::ranges::max_element(tensors, {}, &TensorDifference::largest_relative);
    if (largest.largest_absolute == 0) return count + "all equal.\n";
    return fmt::format(
        "{}all within their bounds, so rounding explains the differences; the largest "
        "relative difference is {} ({}).\n",
        count, figure_text(largest.largest_relative), largest.name);
}

/// "The runs differ in ranks (4 and 2) and seed (1 and 7).", empty if they do not differ.
std::string differences_text(const std::vector<OptionDifference>& differs) {
    std::string text;
    for (std::size_t i = 0; i < differs.size(); ++i) {
        const OptionDifference& option = differs[i];
        const bool last = i + 1 == differs.size();
        text += i == 0 ? "The runs differ in " : last ? " and " : ", ";
        text += fmt::format("{} ({} and {})", option.name, option.a, option.b);
    }
    return text.empty() ? "" : text + ".\n\n";
}

using Cells = std::vector<std::string>;

Cells cells_of(const TensorDifference& tensor) {
    const bool measured = tensor.at >= 0 || tensor.passed;
    const std::string bound = tensor.bound == 0 ? "exact" : figure_text(tensor.bound);
    return {tensor.passed ? "ok" : "FAILED",
            tensor.name,
            tensor.shape.text(),
            measured ? figure_text(tensor.largest_absolute) : "-",
            measured ? figure_text(tensor.largest_relative) : "-",
            measured ? bound : "-",
            measured && tensor.largest_absolute != 0 ? place_text(tensor.shape, tensor.at)
                                                     : ""};
}

/// Returns lines whose columns are as wide as their widest cell.
std::vector<std::string> table(const std::vector<Cells>& rows) {
    std::vector<int> widths(rows.front().size(), 0);
    for (const Cells& row : rows)
        for (std::size_t c = 0; c < row.size(); ++c)
            widths[c] = std::max(widths[c], columns_of(row[c]));
    std::vector<std::string> lines;
    for (const Cells& row : rows) {
        std::string line;
        for (std::size_t c = 0; c < row.size(); ++c) {
            line += row[c];
            line.append(static_cast<std::size_t>(widths[c] - columns_of(row[c])) + 2,
                        ' ');
        }
        line.erase(line.find_last_not_of(' ') + 1);
        lines.push_back(line + "\n");
    }
    return lines;
}

Json tensor_json(const TensorDifference& tensor) {
    Json shape = Json::array();
    for (int d = 0; d < tensor.shape.dimensions(); ++d)
        shape.push_back(tensor.shape[d]);
    Json json{{"name", tensor.name}, {"shape", shape}, {"passed", tensor.passed}};
    if (!tensor.problem.empty()) json["problem"] = tensor.problem;
    json["bound"] = json_figure(tensor.bound);
    json["largest_absolute"] = json_figure(tensor.largest_absolute);
    json["largest_relative"] = json_figure(tensor.largest_relative);
    if (tensor.at < 0) return json;
    json["at"] = tensor.at;
    json["a"] = json_figure(tensor.a);
    json["b"] = json_figure(tensor.b);
    return json;
}

}  // namespace

std::string Comparison::text() const {
    const std::string differences = differences_text(differs);
    if (tensors.empty())
        return differences +
               "Neither record has a tensor, so there is nothing to compare.\n";
    std::vector<const TensorDifference*> order;
    for (const TensorDifference& tensor : tensors)
        order.push_back(&tensor);
    std::ranges::stable_sort(order, {}, &TensorDifference::passed);
    std::vector<Cells> rows{
        {"", "tensor", "shape", "absolute", "relative", "bound", "at"}};
    for (const TensorDifference* tensor : order)
        rows.push_back(cells_of(*tensor));
    const std::vector<std::string> lines = table(rows);
    std::string text = differences + lines.front();
    for (std::size_t i = 0; i < order.size(); ++i)
        text += lines[i + 1] + details(*order[i]);
    return text + summary(tensors);
}

std::string Comparison::json() const {
    Json list = Json::array();
    for (const TensorDifference& tensor : tensors)
        list.push_back(tensor_json(tensor));
    Json options = Json::array();
    for (const OptionDifference& option : differs)
        options.push_back({{"option", option.name}, {"a", option.a}, {"b", option.b}});
    return Json{{"passed", passed()}, {"differs", options}, {"tensors", list}}.dump(2) +
           "\n";
}

}  // namespace lockstep
