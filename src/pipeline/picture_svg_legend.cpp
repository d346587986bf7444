#include "src/pipeline/picture_svg_legend.hpp"

#include <fmt/format.h>

#include "src/report/svg_parts.hpp"

namespace lockstep {

void SvgLegend::add(const std::vector<std::string>& colours,
                    const std::string& words) {
    constexpr double kSwatch = 12;
    constexpr double kSpace = 5;
    constexpr double kLetter = 6.9;
    constexpr double kBetween = 20;
    const double swatches = kSwatch * static_cast<double>(colours.size());
    const double width =
        swatches + kSpace + kLetter * static_cast<double>(words.size());
    if (x_ > left_ && x_ + width > right_) {
        x_ = left_;
        y_ += kLine;
    }
    double x = x_;
    for (const std::string& colour : colours) {
        svg_ += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
            "fill=\"{}\"/>\n",
            svg_number(x), svg_number(y_), kSwatch, kSwatch, colour);
        x += kSwatch;
    }
    svg_ += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n",
                        svg_number(colours.empty() ? x : x + kSpace),
                        svg_number(y_ + 10), words);
    x_ += width + kBetween;
}

void SvgLegend::add(const ScheduleLook& look, int chunks) {
    constexpr int kMostDrawn = 8;
    for (const InstructionKind kind : look.kinds())
        add({look.colour(kind, 0)}, look.of(kind, 0).words);
    const int step = chunks <= kMostDrawn ? 1 : chunks - 1;
    for (int chunk = 0; chunks > 1 && chunk < chunks; chunk += step) {
        std::vector<std::string> colours;
        for (const InstructionKind kind : look.kinds())
            colours.push_back(look.colour(kind, chunk));
        add(colours, fmt::format("chunk {}", chunk));
    }
}

}  // namespace lockstep
