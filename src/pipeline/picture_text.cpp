#include <algorithm>

#include <fmt/format.h>

#include "src/pipeline/picture.hpp"
#include "src/pipeline/picture_axis.hpp"
#include "src/pipeline/picture_held.hpp"
#include "src/pipeline/picture_look.hpp"
#include "src/pipeline/picture_rows.hpp"
#include "src/report/text_legend.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

constexpr int kMostStages = 16;
constexpr int kLeastWidth = 40;

/// Cut to so many columns.
std::string clipped(std::string text, int columns) {
    while (columns_of(text) > columns)
        text.pop_back();
    return text;
}

/// Entries in lines of at most `width` columns, two spaces apart.
class EntryLines {
  public:
    explicit EntryLines(int width) : width_(width) {}

    /// `sample` may be coloured; it takes `columns`.
    void add(const std::string& sample, int columns,
             const std::string& words) {
        columns += columns_of(words);
        const bool breaks = used_ > 0 && used_ + 2 + columns > width_;
        if (used_ > 0) text_ += breaks ? "\n" : "  ";
        used_ = used_ == 0 || breaks ? columns : used_ + 2 + columns;
        text_ += sample + words;
    }
    std::string text() const { return text_ + "\n"; }

  private:
    int width_;
    int used_ = 0;
    std::string text_;
};

/// One picture: what is drawn, and where the columns are.
class TextPicture {
  public:
    TextPicture(const Schedule& schedule, const Timing& timing,
                const SchedulePictureOptions& options);

    std::string text();

  private:
    std::string label(std::size_t stage) const {
        return fmt::format("stage {}", stage);
    }
    std::string held_label(std::size_t stage) const {
        return fmt::format("{} peak {}", stage,
                           held_text(held_[stage].peak));
    }
    /// What stands left of a row.
    std::string left_of_row(const std::string& label) const {
        return fmt::format("{:>{}}|", label, label_columns_ - 1);
    }
    int label_columns() const { return label_columns_; }

    std::string boxes_text(const std::vector<StageBox>& boxes);
    std::string box_text(const StageBox& box, int columns);
    std::string axis_text() const;
    std::string held_lines() const;
    std::string legend_text() const;
    std::string shared_columns_text() const;

    const Schedule& schedule_;
    const Timing& timing_;
    const SchedulePictureOptions& options_;
    ScheduleLook look_;
    int width_;
    int stages_;
    int label_columns_ = 0;
    int number_digits_;
    std::vector<std::vector<StageBox>> rows_;
    std::vector<HeldMemory> held_;
    bool numbers_ = false;  ///< some box has one
    CellGrid grid_;
};

TextPicture::TextPicture(const Schedule& schedule, const Timing& timing,
                         const SchedulePictureOptions& options)
    : schedule_(schedule),
      timing_(timing),
      options_(options),
      look_(schedule),
      width_(std::max(options.width, kLeastWidth)),
      stages_(std::min(schedule.stages, kMostStages)),
      number_digits_(
          columns_of(std::to_string(schedule.micro_batches - 1))) {
    for (int stage = 0; stage < stages_; ++stage) {
        rows_.push_back(stage_boxes(schedule, timing, stage));
        held_.push_back(held_memory(schedule, timing, stage, options.kept));
        const auto s = static_cast<std::size_t>(stage);
        label_columns_ = std::max({label_columns_, columns_of(label(s)) + 1,
                                   columns_of(held_label(s)) + 1});
    }
    grid_ = grid_of(rows_, timing.makespan, width_ - label_columns_ - 1);
}

std::string TextPicture::text() {
    std::string text;
    if (!options_.title.empty())
        text += clipped(options_.title, width_) + "\n";
    for (std::size_t s = 0; s < rows_.size(); ++s)
        text += left_of_row(label(s)) + boxes_text(rows_[s]) + "|\n";
    text += axis_text() + held_lines();
    if (schedule_.stages > stages_)
        text += fmt::format("(and {} more stages, not drawn)\n",
                            schedule_.stages - stages_);
    return text + shared_columns_text() + legend_text();
}

/// Where a column is longer than the shortest box, some are not to be seen.
std::string TextPicture::shared_columns_text() const {
    Picoseconds shortest = timing_.makespan;
    for (const std::vector<StageBox>& row : rows_)
        for (const StageBox& box : row)
            shortest = std::min(shortest, box.span.end - box.span.start);
    const double column =
        static_cast<double>(timing_.makespan) / std::max(grid_.columns, 1);
    if (column <= static_cast<double>(shortest)) return "";
    return wrapped(
        fmt::format(
            "(a column is {:.3g} of these times wide, and shows what "
            "fills most of it; {} draws all)",
            column / options_.ticks, options_.drawn_by),
        width_);
}

std::string TextPicture::boxes_text(const std::vector<StageBox>& boxes) {
    const std::vector<int> shown = columns_of_boxes(boxes, grid_);
    std::string text;
    for (std::size_t c = 0; c < shown.size();) {
        std::size_t next = c + 1;
        while (next < shown.size() && shown[next] == shown[c])
            ++next;
        if (shown[c] < 0)
            text.append(next - c, '.');
        else
            text += box_text(boxes[shown[c]], static_cast<int>(next - c));
        c = next;
    }
    return text;
}

/// "F3----": letter, micro-batch where all of them would fit, fill.
std::string TextPicture::box_text(const StageBox& box, int columns) {
    const SpanLook look = look_.of(box.work->kind, box.work->chunk);
    std::string text(1, look.letter);
    if (columns > number_digits_) {
        text += std::to_string(box.work->micro_batch);
        numbers_ = true;
    }
    text.resize(static_cast<std::size_t>(columns), look.fill);
    return in_colour(text, look, options_.colour);
}

/// A ruler, and times below it, each where its column begins.
std::string TextPicture::axis_text() const {
    const int digits = axis_label_size(timing_.makespan, options_.ticks);
    const int most = std::max(grid_.columns / (digits + 5), 1);
    const auto left = static_cast<std::size_t>(label_columns());
    std::string ruler(static_cast<std::size_t>(grid_.columns) + 1, '-');
    std::string labels = fmt::format("{:>{}}", "time ", left);
    for (const auto& [time, number] :
         axis_ticks(timing_.makespan, options_.ticks, most)) {
        const auto at = static_cast<std::size_t>(grid_.column_of(time));
        ruler[at] = '+';
        if (labels.size() > left + at ||
            left + at + number.size() > static_cast<std::size_t>(width_))
            continue;
        labels.resize(left + at, ' ');
        labels += number + ' ';
    }
    labels.erase(labels.find_last_not_of(' ') + 1);
    return std::string(left, ' ') + ruler + "\n" + labels + "\n";
}

std::string TextPicture::held_lines() const {
    const HeldDigits digits(held_);
    std::string text = wrapped(
        held_words(schedule_, options_.kept) + digits.words(), width_);
    for (std::size_t s = 0; s < held_.size(); ++s)
        text +=
            fmt::format("{}{}|\n", left_of_row(held_label(s)),
                        digits.columns(held_[s], grid_, timing_.makespan));
    return text;
}

std::string TextPicture::legend_text() const {
    EntryLines lines(width_);
    for (const InstructionKind kind : look_.kinds()) {
        const SpanLook look = look_.of(kind, 0);
        const std::string sample{look.letter, look.fill};
        lines.add(in_colour(sample, look, options_.colour), 2,
                  fmt::format(" {}", look.words));
    }
    if (schedule_.chunks > 1) {
        std::string small;
        for (const InstructionKind kind : look_.kinds())
            small += fmt::format("{} ", look_.of(kind, 1).letter);
        lines.add(small, columns_of(small),
                  schedule_.chunks == 2 ? "chunk 1" : "odd chunks");
    }
    if (numbers_) lines.add("0 1 2", 5, " micro-batch");
    lines.add(".", 1, " idle");
    return lines.text();
}

}  // namespace

std::string schedule_text(const Schedule& schedule, const Timing& timing,
                          const SchedulePictureOptions& options) {
    return TextPicture(schedule, timing, options).text();
}

}  // namespace lockstep
