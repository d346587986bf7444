#include "src/chart/plot.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "src/chart/look.hpp"
#include "src/chart/svg.hpp"
#include "src/core/units.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

/// The range of a plot's axes: bytes from `least` to `most`, values from 0 to `top`,
/// which is a round number.
struct PlotRange {
    explicit PlotRange(const Plot& plot) {
        double highest = 0;
        for (const Plot::Curve& curve : plot.curves)
            for (const auto& [bytes, value] : curve.points) {
                least = least == 0 ? bytes : std::min(least, bytes);
                most = std::max(most, bytes);
                highest = std::max(highest, value);
            }
        if (highest <= 0) return;
        const double power = std::pow(10, std::floor(std::log10(highest)));
        for (const double round : {1, 2, 4, 5, 10})
            if (top = round * power; top >= highest) break;
    }
    /// Returns where a size lies, from 0 to 1.
    double across(double bytes) const {
        return most > least ? std::log2(bytes / least) / std::log2(most / least) : 0;
    }

    double least = 0;
    double most = 0;
    double top = 1;
};

/// Returns a curve's value between its points.
double value_at(const Plot::Curve& curve, double bytes) {
    const auto after = std::ranges::find_if(
        curve.points, [bytes](const auto& point) { return point.first >= bytes; });
    if (after == curve.points.end()) return curve.points.back().second;
    if (after == curve.points.begin()) return after->second;
    const auto& [low, low_value] = *std::prev(after);
    const double part = std::log2(bytes / low) / std::log2(after->first / low);
    return low_value + part * (after->second - low_value);
}

std::string size_text(double bytes) {
    return bytes_text(std::llround(bytes));
}

constexpr int kLinesAcross = 4;  ///< of the grid
constexpr double kPlotWidth = 640;
constexpr double kPlotHeight = 260;
constexpr double kPlotLeft = 60;
constexpr double kPlotMargin = 24;

/// Appends a plot to a picture whose height grows.
void draw(const Plot& plot, SvgPart& picture) {
    const PlotRange range(plot);
    const double top = picture.height + 2 * kPlotMargin;
    const double bottom = top + kPlotHeight;
    const auto x = [&](double bytes) {
        return kPlotLeft + kPlotWidth * range.across(bytes);
    };
    const auto y = [&](double value) { return bottom - kPlotHeight * value / range.top; };
    std::string& svg = picture.svg;
    svg += svg_text(kPlotLeft, top - kPlotMargin / 2, plot.title, "h");
    for (int i = 0; i <= kLinesAcross; ++i) {
        const double value = range.top * i / kLinesAcross;
        svg += fmt::format("<path class=\"g\" d=\"M{} {}h{}\"/>\n", kPlotLeft,
                           svg_number(y(value)), kPlotWidth);
        svg += svg_text(kPlotLeft - 6, y(value) + 4,
                        i == kLinesAcross ? fmt::format("{:g} {}", value, plot.unit)
                                          : fmt::format("{:g}", value),
                        "e");
        const double bytes =
            range.least *
            std::pow(range.most / range.least, static_cast<double>(i) / kLinesAcross);
        svg += svg_text(x(bytes), bottom + 16, size_text(bytes), "m");
    }
    SvgLegend legend(kPlotLeft, kPlotLeft + kPlotWidth, bottom + kPlotMargin);
    for (std::size_t i = 0; i < plot.curves.size(); ++i) {
        const std::string colour = colour_of_place(static_cast<int>(i)).hex();
        std::string path;
        for (const auto& [bytes, value] : plot.curves[i].points)
            path += fmt::format("{}{} {}", path.empty() ? "M" : "L", svg_number(x(bytes)),
                                svg_number(y(value)));
        svg += fmt::format(
            "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path,
            colour);
        legend.add({fmt::format("fill=\"{}\"/>", colour)}, plot.curves[i].name);
    }
    svg += legend.svg();
    picture.height = legend.bottom() + kPlotMargin;
}

}  // namespace

std::string plots_svg(const std::vector<Plot>& plots) {
    SvgPart picture{kPlotLeft + kPlotWidth + 2 * kPlotMargin, 0, ""};
    for (const Plot& plot : plots)
        draw(plot, picture);
    return svg_document(picture);
}

std::string plot_text(const Plot& plot, int width) {
    constexpr int kRows = 10;
    const PlotRange range(plot);
    const std::string top = fmt::format("{:g} {}", range.top, plot.unit);
    const int left = columns_of(top) + 1;
    const int columns = std::clamp(width - left - 2, 20, 72);
    std::vector<std::string> rows(kRows + 1,
                                  std::string(static_cast<std::size_t>(columns), ' '));
    for (int column = 0; column < columns; ++column) {
        const double bytes =
            range.least * std::pow(range.most / range.least, column / (columns - 1.0));
        for (std::size_t i = plot.curves.size(); i-- > 0;) {
            const double value = value_at(plot.curves[i], bytes);
            const auto row =
                static_cast<std::size_t>(std::lround(kRows * (1 - value / range.top)));
            rows[row][static_cast<std::size_t>(column)] = static_cast<char>('A' + i);
        }
    }
    std::string text = plot.title + "\n";
    for (std::size_t row = 0; row < rows.size(); ++row) {
        const std::string label = row == 0 ? top : row + 1 == rows.size() ? "0" : "";
        text += pad_left(label, left - 1) + " |" + rows[row] + "\n";
    }
    const std::string least = size_text(range.least);
    text += pad_left("", left) + " " + least +
            pad_left(size_text(range.most), columns - columns_of(least)) + "\n";
    for (std::size_t i = 0; i < plot.curves.size(); ++i)
        text += fmt::format("{}{} {}", i == 0 ? "" : "   ", static_cast<char>('A' + i),
                            plot.curves[i].name);
    return text + "\n";
}

}  // namespace lockstep
