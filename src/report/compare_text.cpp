#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/report/compare.hpp"
#include "src/report/json_text.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

using Json = nlohmann::ordered_json;

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

/// What is wrong with it, as a line of its own; empty where nothing is.
std::string details(const TensorDifference& tensor) {
    if (tensor.passed) return "";
    if (!tensor.problem.empty()) return "        " + tensor.problem + "\n";
    return fmt::format("        at {}: {} in A, {} in B\n",
                       place_text(tensor.shape, tensor.at), tensor.a, tensor.b);
}

/// What all tensors come to: the verdict, and the difference that is nearest to its
/// bound.
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
        "{}all within their bounds; the largest relative difference is {} ({}).\n", count,
        figure_text(largest.largest_relative), largest.name);
}

/// "The runs differ in ranks (4 and 2) and seed (1 and 7).", empty where they do not.
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

/// Lines of columns as wide as their widest cell.
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

Json figure_json(double value) {
    return Json::parse(json_number(value));
}

Json tensor_json(const TensorDifference& tensor) {
    Json shape = Json::array();
    for (int d = 0; d < tensor.shape.dimensions(); ++d)
        shape.push_back(tensor.shape[d]);
    Json json{{"name", tensor.name}, {"shape", shape}, {"passed", tensor.passed}};
    if (!tensor.problem.empty()) json["problem"] = tensor.problem;
    json["bound"] = figure_json(tensor.bound);
    json["largest_absolute"] = figure_json(tensor.largest_absolute);
    json["largest_relative"] = figure_json(tensor.largest_relative);
    if (tensor.at < 0) return json;
    json["at"] = tensor.at;
    json["a"] = figure_json(tensor.a);
    json["b"] = figure_json(tensor.b);
    return json;
}

}  // namespace

std::string Comparison::text() const {
    const std::string differences = differences_text(differs);
    if (tensors.empty())
        return differences +
               "Neither record holds a tensor: there is nothing to compare.\n";
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
    return Json{{"passed", passed()}, {"differs", options}, {"tensors", list}}.dump(
               2, ' ', false, Json::error_handler_t::replace) +
           "\n";
}

}  // namespace lockstep
