#include "src/chart/text.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "src/chart/cells.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

constexpr std::size_t kMostGroupsInText = 16;
constexpr int kLeastColumns = 40;
constexpr int kBusyColumns = 5;
constexpr char kIdle = '/';
constexpr char kNothing = '.';

std::string cut(const std::string& text, int columns) {
    return text.substr(0, bytes_in_columns(text, columns));
}

/// Entries in lines of at most `width` columns, two spaces apart.
class EntryLines {
  public:
    explicit EntryLines(int width) : width_(width) {}

    /// `sample` may be coloured; it is `columns` columns wide.
    void add(const std::string& sample, int columns, const std::string& words) {
        columns += columns_of(words);
        const bool breaks = used_ > 0 && used_ + 2 + columns > width_;
        if (used_ > 0) text_ += breaks ? "\n" : "  ";
        used_ = used_ == 0 || breaks ? columns : used_ + 2 + columns;
        text_ += sample + words;
    }
    std::string text() const { return used_ == 0 ? "" : text_ + "\n"; }

  private:
    int width_;
    int used_ = 0;
    std::string text_;
};

/// Amounts as text, with one character each; "." is 0. If all are whole numbers of at
/// most 35, "1" to "9" and "a" to "z" stand for 1 to 35. Otherwise "1" to "9" stand for
/// ninths of the largest amount, rounded up.
class AmountDigits {
  public:
    AmountDigits(const Chart& chart, const Panel& panel)
        : chart_(chart), amount_text_(panel.amount_text) {
        for (std::size_t g = 0; g < std::min(panel.groups.size(), kMostGroupsInText);
             ++g) {
            for (const Strip& strip : panel.groups[g].strips) {
                most_ = std::max(most_, strip.peak);
                for (const Level& level : strip.levels)
                    if (level.total() != std::floor(level.total())) exact_ = false;
            }
        }
        if (most_ >= static_cast<double>(kDigits.size())) exact_ = false;
    }

    /// "; f is 15"; empty if each digit stands for its own value.
    std::string words() const {
        const auto say = [&](const auto& digit, const auto& amount) {
            return fmt::format(fmt::runtime(chart_.said("; {} is {}")), digit, amount);
        };
        if (!exact_) return say(9, amount_text_(most_));
        return most_ > 9 ? say(digit(most_), most_) : "";
    }

    /// Returns the highest level in each column. This level begins in the column, or
    /// continues through it. The last level ends at `end`.
    std::string columns(const Strip& strip, const CellGrid& grid, Picoseconds end) const {
        std::vector<double> highest(static_cast<std::size_t>(grid.columns));
        for (std::size_t i = 0; i < strip.levels.size(); ++i) {
            const Picoseconds from = strip.levels[i].time;
            const bool last = i + 1 == strip.levels.size();
            const Picoseconds until = last ? end : strip.levels[i + 1].time;
            if (until <= from) continue;
            const int first = grid.column_of(from);
            const int behind =
                std::min(std::max(grid.column_of(until), first + 1), grid.columns);
            for (int c = first; c < behind; ++c)
                highest[c] = std::max(highest[c], strip.levels[i].total());
        }
        std::string text;
        for (const double amount : highest)
            text += digit(amount);
        return text;
    }

  private:
    static constexpr std::string_view kDigits = ".123456789abcdefghijklmnopqrstuvwxyz";

    char digit(double amount) const {
        if (amount <= 0) return kDigits.front();
        return kDigits[static_cast<std::size_t>(
            exact_ ? amount : std::max(std::ceil(amount / most_ * 9 - 1e-9), 1.))];
    }

    const Chart& chart_;
    std::string (*amount_text_)(double);
    double most_ = 0;
    bool exact_ = true;
};

/// One picture: what is drawn, and where the columns are.
class TextPicture {
  public:
    TextPicture(const Chart& chart, const TextStyle& style)
        : chart_(chart), style_(style), width_(std::max(style.width, kLeastColumns)) {
        measure_labels();
        std::vector<const Row*> rows;
        for_each_row([&](const RowGroup&, const Row& row) {
            rows.push_back(&row);
            if (row.busy >= 0) busy_columns_ = kBusyColumns;
        });
        for (const Panel& panel : chart.panels)
            end_ = std::max(end_, panel.axis.end);
        grid_ = CellGrid::of(rows, end_, width_ - label_columns_ - 2 - busy_columns_);
    }

    std::string text() {
        std::string text;
        for (const Panel& panel : chart_.panels)
            text += panel_text(panel);
        return text + column_text() + legend_text();
    }

  private:
    /// Calls `visit` with each group and row that is drawn.
    template <typename Visit>
    void for_each_row(const Visit& visit) const {
        for (const Panel& panel : chart_.panels)
            for (std::size_t g = 0; g < std::min(panel.groups.size(), kMostGroupsInText);
                 ++g)
                for (const Row& row : panel.groups[g].rows)
                    if (is_drawn(row)) visit(panel.groups[g], row);
    }

    /// Returns false for small rows, because they have no room, and for empty rows,
    /// unless they show idle time.
    static bool is_drawn(const Row& row) {
        return row.size != RowSize::small &&
               (row.shows_idle || !outer_boxes(row).empty());
    }

    /// Leaves out the word "device" if labels are wider than a quarter of the picture.
    /// Leaves out labels of rows if all of them are the same.
    void measure_labels() {
        std::set<std::string> labels;
        for_each_row(
            [&](const RowGroup&, const Row& row) { labels.insert(row_label(row)); });
        for (const std::string& label : labels)
            if (labels.size() > 1)
                row_columns_ = std::max(row_columns_, columns_of(label) + 1);
        const auto widest_group = [&] {
            int widest = 0;
            for_each_row([&](const RowGroup& group, const Row&) {
                widest = std::max(widest, columns_of(group_label(group)));
            });
            return widest;
        };
        has_word_ = widest_group() + row_columns_ <= width_ / 4;
        group_columns_ = widest_group();
        label_columns_ = group_columns_ + row_columns_;
        for (const Panel& panel : chart_.panels) {
            if (has_rows(panel)) continue;
            for (const RowGroup& group : panel.groups)
                for (const Strip& strip : group.strips)
                    label_columns_ = std::max(
                        label_columns_, columns_of(strip_label(panel, group, strip)));
        }
    }

    static bool has_rows(const Panel& panel) {
        return std::ranges::any_of(
            panel.groups, [](const RowGroup& group) { return !group.rows.empty(); });
    }
    std::string members(const RowGroup& group) const {
        return members_text(group.members, width_ / 8);
    }
    std::string group_label(const RowGroup& group) const {
        if (!has_word_) return members(group);
        return chart_.member_word(group.members.size()) + " " + members(group);
    }
    std::string row_label(const Row& row) const { return cut(row.label, width_ / 5); }
    std::string strip_label(const Panel& panel, const RowGroup& group,
                            const Strip& strip) const {
        return fmt::format("{} {} {}", members(group), chart_.said("peak"),
                           panel.amount_text(strip.peak));
    }

    std::string panel_text(const Panel& panel) {
        std::string text = heading(panel);
        const bool rows = has_rows(panel);
        const AmountDigits digits(chart_, panel);
        bool drawn = false;
        for (std::size_t g = 0; g < std::min(panel.groups.size(), kMostGroupsInText);
             ++g) {
            const RowGroup& group = panel.groups[g];
            bool first = true;
            for (const Row& row : group.rows) {
                if (!is_drawn(row)) continue;
                text += row_text(panel, group, row, first);
                first = false;
                drawn = true;
            }
            for (const Strip& strip : group.strips)
                if (!rows)
                    text += line(strip_label(panel, group, strip),
                                 digits.columns(strip, grid_, panel.end));
        }
        if (!rows && !panel.groups.empty()) return text;
        if (!drawn) return text + "(no span of time was traced)\n";
        return text + axis_text(panel.axis) + undrawn_text(panel);
    }

    std::string heading(const Panel& panel) const {
        if (!has_rows(panel) && !panel.groups.empty())
            return wrapped(chart_.said(panel.title) + AmountDigits(chart_, panel).words(),
                           width_);
        std::string text = chart_.said(panel.title);
        if (!panel.note.empty())
            text += (text.empty() ? "" : ": ") + chart_.said(panel.note);
        return text.empty() ? "" : cut(text, width_) + "\n";
    }

    std::string line(const std::string& label, const std::string& cells) const {
        return fmt::format("{}|{}|\n", pad_left(label, label_columns_), cells);
    }

    std::string row_text(const Panel& panel, const RowGroup& group, const Row& row,
                         bool first) {
        const std::string label =
            pad_right(first ? group_label(group) : "", group_columns_) +
            (row_columns_ > 0 ? " " + pad_right(row_label(row), row_columns_ - 1) : "");
        std::string text = line(label, cells_text(panel, row));
        if (row.busy < 0) return text;
        text.pop_back();
        return text + fmt::format("{:>4}%\n", std::lround(100 * row.busy));
    }

    std::string cells_text(const Panel& panel, const Row& row) {
        const std::vector<const Box*> boxes = outer_boxes(row);
        const std::vector<int> shown = fill_cells(boxes, grid_);
        const int over = grid_.column_of(panel.end);
        std::string text;
        for (std::size_t c = 0; c < shown.size();) {
            std::size_t next = c + 1;
            while (next < shown.size() && shown[next] == shown[c])
                ++next;
            if (shown[c] >= 0)
                text += box_text(*boxes[shown[c]], static_cast<int>(next - c));
            for (; c < next && shown[c] < 0; ++c) {
                const bool lost = row.shows_idle && static_cast<int>(c) < over;
                (lost ? has_idle_ : has_nothing_) = true;
                text += lost ? kIdle : kNothing;
            }
            c = next;
        }
        return text;
    }

    /// "F3----": letter, number if it fits, fill.
    std::string box_text(const Box& box, int columns) {
        const Look& look = chart_.looks[box.look];
        drawn_.insert(box.look);
        std::string text(1, look.letter);
        const std::string number = box.number < 0 ? "" : std::to_string(box.number);
        if (static_cast<int>(number.size()) < columns) {
            text += number;
            has_numbers_ = has_numbers_ || !number.empty();
        }
        text.resize(static_cast<std::size_t>(columns), look.fill);
        return in_colour(text, look);
    }

    std::string in_colour(const std::string& text, const Look& look) const {
        return style_.colour ? on_colour(text, colour_of(look)) : text;
    }

    /// Returns a ruler, and times below it; each time begins at its column.
    std::string axis_text(Axis axis) const {
        axis.end = end_;
        const int most = std::max(grid_.columns / (axis.label_size() + 5), 1);
        const auto left = static_cast<std::size_t>(label_columns_) + 1;
        std::string ruler(static_cast<std::size_t>(grid_.columns) + 1, '-');
        std::string labels;
        for (const auto& [time, number] : axis.ticks(most)) {
            const auto at = static_cast<std::size_t>(grid_.column_of(time));
            ruler[at] = '+';
            if (labels.size() > at ||
                left + at + number.size() > static_cast<std::size_t>(width_))
                continue;
            labels.resize(at, ' ');
            labels += number + ' ';
        }
        labels.erase(labels.find_last_not_of(' ') + 1);
        const std::string unit = axis.unit.empty() ? chart_.said("time") : axis.unit;
        return std::string(left, ' ') + ruler + "\n" + pad_left(unit, label_columns_) +
               " " + labels + "\n";
    }

    std::string undrawn_text(const Panel& panel) const {
        std::size_t undrawn = 0;
        for (std::size_t g = kMostGroupsInText; g < panel.groups.size(); ++g)
            undrawn += panel.groups[g].members.size();
        return undrawn == 0 ? ""
                            : fmt::format("(and {} more {}, not drawn)\n", undrawn,
                                          chart_.member_word(2));
    }

    /// Returns a remark if a column is longer than the shortest box: some boxes are then
    /// not visible.
    std::string column_text() const {
        Picoseconds shortest = end_;
        for_each_row([&](const RowGroup&, const Row& row) {
            for (const Box* box : outer_boxes(row))
                shortest = std::min(shortest, box->end - box->start);
        });
        const double column = static_cast<double>(end_) / std::max(grid_.columns, 1);
        if (!chart_.grows || column <= static_cast<double>(shortest)) return "";
        std::string text = fmt::format(
            "(a column spans {:.3g} on this time scale, and shows what fills most of it",
            column / chart_.panels.front().axis.per_unit);
        if (!style_.drawn_by.empty()) text += "; " + style_.drawn_by + " draws all";
        return wrapped(text + ")", width_);
    }

    std::string legend_text() const {
        EntryLines lines(width_);
        for (const LegendEntry& entry : chart_.legend) {
            std::string sample;
            int columns = 0;
            for (const int place : entry.looks) {
                const Look& look = chart_.looks[place];
                if (!drawn_.contains(place)) continue;
                std::string letters(1, look.letter);
                if (entry.looks.size() == 1 && look.fill != look.letter)
                    letters += look.fill;
                columns += columns_of(letters) + 1;
                sample += in_colour(letters, look) + " ";
            }
            if (columns > 0) lines.add(sample, columns, chart_.said(entry.words));
        }
        if (has_numbers_) lines.add("0 1 2", 5, " " + chart_.said("micro-batch"));
        if (has_idle_) lines.add({kIdle}, 1, " " + chart_.said("idle"));
        if (has_nothing_) lines.add({kNothing}, 1, " " + chart_.said("nothing"));
        if (busy_columns_ > 0) lines.add("%", 1, " " + chart_.said("busy"));
        return lines.text();
    }

    const Chart& chart_;
    const TextStyle& style_;
    int width_;
    Picoseconds end_ = 1;
    bool has_word_ = true;
    int group_columns_ = 0;
    int row_columns_ = 0;
    int label_columns_ = 0;
    int busy_columns_ = 0;
    CellGrid grid_;
    // These things were drawn, and so belong in the legend.
    std::set<int> drawn_;
    bool has_numbers_ = false;
    bool has_idle_ = false;
    bool has_nothing_ = false;
};

}  // namespace

std::string chart_text(const Chart& chart, const TextStyle& style) {
    return TextPicture(chart, style).text();
}

}  // namespace lockstep
