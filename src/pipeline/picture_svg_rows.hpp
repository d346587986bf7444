#pragma once

#include <string>
#include <vector>

#include "src/pipeline/picture_held.hpp"
#include "src/pipeline/picture_look.hpp"
#include "src/pipeline/picture_rows.hpp"
#include "src/report/svg_parts.hpp"

namespace lockstep {

/// Where a row of the picture lies, in pixels, and whose it is.
struct SvgRow {
    int stage;
    double top;
    double height;
};

/// Pixels that a number takes in a box.
constexpr double number_width(int digits) {
    constexpr double kDigitWidth = 6.4;
    return kDigitWidth * digits + 1;
}

/// A rectangle a box with its tooltip, and the number of its micro-batch in
/// those where `digits` digits fit.
std::string svg_boxes(const std::vector<StageBox>& boxes,
                      const ScheduleLook& look, const SvgScale& scale,
                      const SvgRow& row, int digits);

/// For rows of very many boxes: in each pixel the colour of the box that
/// fills most of it.
std::string svg_pixels(const std::vector<StageBox>& boxes,
                       const ScheduleLook& look, const SvgScale& scale,
                       const SvgRow& row);

inline constexpr const char* kSentColour = "#D55E00";
inline constexpr const char* kReceivedColour = "#F2B58C";

/// A thin lane of the stage's messages, with tooltips unless `pixels`.
std::string svg_messages(const std::vector<StageBox>& messages,
                         const SvgScale& scale, const SvgRow& row,
                         bool pixels);

/// What a stage holds, `most` of it as high as the row, and its peak.
std::string svg_held(const HeldMemory& held, const SvgScale& scale,
                     const SvgRow& row, double most);

/// Colours of what is held: from forward on, and between the halves.
const char* held_colour(bool for_weights);

}  // namespace lockstep
