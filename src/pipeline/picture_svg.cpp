#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "src/pipeline/picture.hpp"
#include "src/pipeline/picture_axis.hpp"
#include "src/pipeline/picture_svg_legend.hpp"
#include "src/pipeline/picture_svg_rows.hpp"

namespace lockstep {

namespace {

constexpr const char* kStyle =
    "<style>text{font:11px 'DejaVu "
    "Sans',Arial,sans-serif;fill:#111}.h{font-size:13px;font-weight:bold}."
    "e{text-anchor:end;fill:#444}.m{text-anchor:middle;fill:#444}.b{font-"
    "size:10px;text-anchor:middle;pointer-events:none}.p{font-size:10px}.w{"
    "stroke:#fff;stroke-width:.8}.r{fill:#f4f4f4}.g{stroke:#ddd;stroke-"
    "width:1}</style>\n";

constexpr int kMostStages = 64;
/// Of more, rows are drawn by the pixel.
constexpr std::size_t kMostBoxes = 20'000;

// Pixels.
constexpr double kLeastBox = 14;  ///< of the shortest that has a number
constexpr double kLeastWidth = 560;
constexpr double kMostWidth = 5'900;
constexpr double kMargin = 14;
constexpr double kLabels = 86;
constexpr double kRight = 44;
constexpr double kBox = 22;
constexpr double kLane = 6;
constexpr double kGap = 4;
constexpr double kAxis = 30;
constexpr double kHeld = 26;
constexpr double kHeldGap = 15;  ///< with the peak's number
constexpr double kLine = 20;
constexpr double kDigit = 7;

class SvgPicture {
  public:
    SvgPicture(const Schedule& schedule, const Timing& timing,
               const SchedulePictureOptions& options);

    std::string svg();

  private:
    void place_times();
    void draw_stages();
    void draw_held();
    void draw_axis(double from);
    void draw_legend();
    void draw_track(const SvgRow& row);

    const Schedule& schedule_;
    const Timing& timing_;
    const SchedulePictureOptions& options_;
    ScheduleLook look_;
    int stages_;
    int digits_;
    std::vector<std::vector<StageBox>> boxes_;
    std::vector<std::vector<StageBox>> messages_;
    bool has_messages_ = false;
    bool has_halves_ = false;
    bool has_numbers_ = false;
    bool by_pixel_ = false;
    SvgScale scale_;
    double y_ = kMargin;
    // One over another:
    std::string tracks_;
    std::string lines_;
    std::string body_;
};

SvgPicture::SvgPicture(const Schedule& schedule, const Timing& timing,
                       const SchedulePictureOptions& options)
    : schedule_(schedule),
      timing_(timing),
      options_(options),
      look_(schedule),
      stages_(std::min(schedule.stages, kMostStages)),
      digits_(static_cast<int>(
          std::to_string(schedule.micro_batches - 1).size())) {
    std::size_t count = 0;
    for (int stage = 0; stage < stages_; ++stage) {
        boxes_.push_back(stage_boxes(schedule, timing, stage));
        messages_.push_back(stage_messages(schedule, timing, stage));
        count += boxes_.back().size() + messages_.back().size();
        has_messages_ = has_messages_ || !messages_.back().empty();
    }
    by_pixel_ = count > kMostBoxes;
    place_times();
}

/// Wide enough for a number in the shortest box, within bounds.
void SvgPicture::place_times() {
    scale_.end = std::max<Picoseconds>(timing_.makespan, 1);
    Picoseconds shortest = scale_.end;
    Picoseconds longest = 0;
    for (const std::vector<StageBox>& row : boxes_) {
        for (const StageBox& box : row) {
            const Picoseconds length = box.span.end - box.span.start;
            shortest = std::min(shortest, length);
            longest = std::max(longest, length);
        }
    }
    const double wanted = std::max(kLeastBox, number_width(digits_) + 1) *
                          static_cast<double>(scale_.end) /
                          static_cast<double>(shortest);
    scale_.left = kLabels;
    scale_.width = std::ceil(std::clamp(wanted, kLeastWidth, kMostWidth));
    has_numbers_ = !by_pixel_ &&
                   scale_.x(longest) - scale_.left >= number_width(digits_);
}

std::string SvgPicture::svg() {
    if (!options_.title.empty()) {
        body_ += fmt::format(
            "<text x=\"{}\" y=\"{}\" class=\"h\">{}</text>\n", kMargin,
            svg_number(y_ + 10), xml_escaped(options_.title));
        y_ += kLine + kGap;
    }
    draw_stages();
    draw_held();
    draw_legend();
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" "
        "height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n{2}<rect width=\"100%\" "
        "height=\"100%\" fill=\"#fff\"/>\n{3}{4}{5}</svg>\n",
        svg_number(scale_.left + scale_.width + kRight), svg_number(y_),
        kStyle, tracks_, lines_, body_);
}

void SvgPicture::draw_stages() {
    const double from = y_;
    for (int stage = 0; stage < stages_; ++stage) {
        const auto at = static_cast<std::size_t>(stage);
        const SvgRow row{stage, y_, kBox};
        draw_track(row);
        body_ += by_pixel_
                     ? svg_pixels(boxes_[at], look_, scale_, row)
                     : svg_boxes(boxes_[at], look_, scale_, row, digits_);
        y_ += kBox;
        if (has_messages_) {
            const SvgRow lane{stage, y_ + 1, kLane - 1};
            body_ += svg_messages(messages_[at], scale_, lane, by_pixel_);
            y_ += kLane;
        }
        y_ += kGap;
    }
    draw_axis(from);
}

void SvgPicture::draw_held() {
    std::vector<HeldMemory> held;
    double most = 0;
    for (int stage = 0; stage < stages_; ++stage) {
        held.push_back(
            held_memory(schedule_, timing_, stage, options_.kept));
        most = std::max(most, held.back().peak);
        for (const HeldLevel& level : held.back().levels)
            has_halves_ = has_halves_ || level.for_weights > 0;
    }
    body_ += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", kMargin,
                         svg_number(y_ + 10),
                         held_words(schedule_, options_.kept));
    y_ += kLine;
    const double from = y_;
    for (int stage = 0; stage < stages_; ++stage) {
        y_ += kHeldGap;
        const SvgRow row{stage, y_, kHeld};
        draw_track(row);
        body_ += svg_held(held[stage], scale_, row, most);
        y_ += kHeld;
    }
    y_ += kGap;
    draw_axis(from);
}

/// Ticks below, where `y_` is, and faint lines through all rows since
/// `from`.
void SvgPicture::draw_axis(double from) {
    const double label =
        kDigit * axis_label_size(timing_.makespan, options_.ticks);
    const int most =
        static_cast<int>(scale_.width / std::max(label + 24, 70.));
    std::string path;
    for (const auto& [time, number] :
         axis_ticks(timing_.makespan, options_.ticks, most)) {
        const std::string x = svg_number(scale_.x(time));
        path += fmt::format("M{} {}V{}", x, svg_number(from),
                            svg_number(y_ + 4));
        body_ +=
            fmt::format("<text x=\"{}\" y=\"{}\" class=\"m\">{}</text>\n",
                        x, svg_number(y_ + 15), number);
    }
    lines_ += fmt::format("<path d=\"{}\" class=\"g\"/>\n", path);
    body_ +=
        fmt::format("<text x=\"{}\" y=\"{}\" class=\"e\">time</text>\n",
                    svg_number(scale_.left - 16), svg_number(y_ + 15));
    y_ += kAxis;
}

/// The stage's name, and a track where it is idle.
void SvgPicture::draw_track(const SvgRow& row) {
    tracks_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "class=\"r\"/>\n",
        svg_number(scale_.left), svg_number(row.top),
        svg_number(scale_.width), svg_number(row.height));
    body_ +=
        fmt::format("<text x=\"{}\" y=\"{}\" class=\"e\">stage {}</text>\n",
                    svg_number(scale_.left - 8),
                    svg_number(row.top + row.height / 2 + 4), row.stage);
}

void SvgPicture::draw_legend() {
    SvgLegend legend(kMargin, scale_.left + scale_.width + kRight, y_);
    legend.add(look_, schedule_.chunks);
    if (has_messages_) {
        legend.add({kSentColour}, "message sent");
        legend.add({kReceivedColour}, "message received");
    }
    if (has_halves_) {
        legend.add({held_colour(false)}, "held for backward");
        legend.add({held_colour(true)}, "held between its halves");
    }
    if (has_numbers_) legend.add({}, "0 1 2: micro-batches");
    if (stages_ < schedule_.stages)
        legend.add({}, fmt::format("{} more stages are not drawn",
                                   schedule_.stages - stages_));
    body_ += legend.svg();
    y_ = legend.bottom();
}

}  // namespace

std::string schedule_svg(const Schedule& schedule, const Timing& timing,
                         const SchedulePictureOptions& options) {
    return SvgPicture(schedule, timing, options).svg();
}

}  // namespace lockstep
