#include "src/chart/svg.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "src/chart/cells.hpp"
#include "src/text/utf8.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

constexpr const char* kDefinitions =
    "<defs><marker id=\"head\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" "
    "markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 6Z\" "
    "fill=\"#333\"/></marker><pattern id=\"idle\" width=\"6\" height=\"6\" "
    "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" "
    "height=\"6\" fill=\"#fafafa\"/><rect width=\"2\" height=\"6\" fill=\"#aaa\"/>"
    "</pattern></defs>\n";
constexpr const char* kStyle =
    "<style>text{font:11px 'DejaVu Sans',Arial,sans-serif;fill:#111}"
    ".h{font-size:13px;font-weight:bold}.e{text-anchor:end;fill:#444}"
    ".m{text-anchor:middle;fill:#444}"
    ".b{font-size:10px;text-anchor:middle;pointer-events:none}.v{fill:#fff}"
    ".w{stroke:#fff;stroke-width:.8}.r{fill:#f4f4f4}.d{fill:url(#idle)}"
    ".g{stroke:#ddd;stroke-width:1}"
    ".n{fill:#f4f4f4;stroke:#888}.k{font-weight:bold;font-size:11px}"
    ".i{fill:#000;fill-opacity:.28;stroke:#fff;stroke-width:.4}"
    ".a{stroke:#333;stroke-width:.8;stroke-opacity:.7;fill:none}</style>\n";

constexpr std::size_t kMostGroups = 64;
constexpr std::size_t kMostBoxes = 20'000;

// Pixels.
constexpr double kWidth = 1'000;      ///< width of the time axis, unless Chart::grows
constexpr double kLeastWidth = 560;   ///< if it grows
constexpr double kMostWidth = 5'900;  ///< if it grows
constexpr double kLeastNumbered = 14;
constexpr double kMargin = 14;
constexpr double kRight = 44;
constexpr double kHeading = 26;
constexpr double kAxis = 34;
constexpr double kStrip = 30;
constexpr double kGap = 3;
constexpr double kGroupGap = 6;
constexpr double kLine = 20;
constexpr double kInner = 6;
constexpr int kMostLabel = 24;  ///< columns
constexpr double kLeastBox = 0.5;
constexpr double kMostMerged = 5;
constexpr double kLeastEdged = 4;  ///< wider boxes have a white edge

/// The fill of a box inside another.
constexpr const char* kInnerDress = "class=\"i\"";

double height_of(RowSize size) {
    return size == RowSize::large ? 24 : size == RowSize::medium ? 18 : 5;
}

double width_on_box(const std::string& text) {
    return kSvgDigit * columns_of(text) + 1;
}

/// Returns attributes with which a script finds the boxes that a box waits for.
std::string data_of(const BoxWords& words) {
    std::string data;
    for (const auto& [name, value] :
         {std::pair{"box", &words.id}, std::pair{"waits", &words.waits_for}})
        if (!value->empty())
            data += fmt::format(" data-{}=\"{}\"", name, xml_escaped(*value));
    return data;
}

/// Converts times to pixels.
struct Scale {
    Picoseconds end = 1;
    double left = 0;
    double width = 1;

    double x(Picoseconds time) const {
        return left + width * static_cast<double>(time) / static_cast<double>(end);
    }
    double right() const { return left + width; }
};

/// A box as it is drawn, or several neighbours that are too narrow to be drawn one by
/// one.
struct DrawnBox {
    const Box* box;  ///< the longest box, if there are several
    Picoseconds start;
    Picoseconds end;
    int count;
};

/// Returns the row's boxes. Neighbours of one depth are merged if they, and the gaps
/// between them, are shorter than `least`.
std::vector<DrawnBox> merged(const Row& row, Picoseconds least) {
    std::vector<DrawnBox> drawn;
    const auto is_short = [&](Picoseconds length) { return length < least; };
    for (const bool inner : {false, true}) {
        const std::size_t first = drawn.size();
        for (const Box& box : row.boxes) {
            if ((box.depth > 0) != inner) continue;
            const bool merges = drawn.size() > first && is_short(box.end - box.start) &&
                                is_short(drawn.back().end - drawn.back().start) &&
                                is_short(box.start - drawn.back().end);
            if (!merges) {
                drawn.push_back({&box, box.start, box.end, 1});
                continue;
            }
            DrawnBox& last = drawn.back();
            if (box.end - box.start > last.box->end - last.box->start) last.box = &box;
            last.end = std::max(last.end, box.end);
            ++last.count;
        }
    }
    return drawn;
}

/// Returns at most two levels for each pixel: the highest and the last in the pixel.
std::vector<Level> levels_by_pixel(const std::vector<Level>& all, const Scale& scale) {
    const auto pixel = [&](const Level& level) {
        return std::floor(scale.x(level.time));
    };
    std::vector<Level> levels;
    for (std::size_t i = 0; i < all.size();) {
        std::size_t highest = i;
        std::size_t last = i;
        for (; i < all.size() && pixel(all[i]) == pixel(all[last]); last = i++)
            if (all[i].total() > all[highest].total()) highest = i;
        levels.push_back(all[highest]);
        if (last != highest) levels.push_back(all[last]);
    }
    return levels;
}

class SvgPicture {
  public:
    explicit SvgPicture(const Chart& chart) : chart_(chart) {
        measure_labels();
        measure_boxes();
    }

    SvgPart draw() {
        for (const Panel& panel : chart_.panels)
            draw_panel(panel);
        if (chart_.panels.empty()) {
            body_ += svg_text(kMargin, 24, "No run was traced.");
            y_ = 40;
        } else {
            draw_legend();
        }
        return {left_ + width_ + kRight, y_, tracks_ + lines_ + body_};
    }

  private:
    static std::size_t drawn_groups(const Panel& panel) {
        return std::min(panel.groups.size(), kMostGroups);
    }
    std::string group_label(const RowGroup& group) const {
        constexpr int kMostColumns = 16;
        return chart_.member_word(group.members.size()) + " " +
               members_text(group.members, kMostColumns);
    }
    std::string peak_label(const Panel& panel, const Strip& strip) const {
        return chart_.said("peak") + " " + panel.amount_text(strip.peak);
    }

    template <typename Visit>
    void for_each_row(const Visit& visit) const {
        for (const Panel& panel : chart_.panels)
            for (std::size_t g = 0; g < drawn_groups(panel); ++g)
                for (const Row& row : panel.groups[g].rows)
                    visit(panel, panel.groups[g], row);
    }

    /// Labels of groups are on the left, and labels of their rows and strips are next to
    /// them. If a group has no rows, its strips' labels are below the group's label.
    void measure_labels() {
        int groups = 0;
        int rows = 0;
        for (const Panel& panel : chart_.panels) {
            for (std::size_t g = 0; g < drawn_groups(panel); ++g) {
                const RowGroup& group = panel.groups[g];
                groups = std::max(groups, columns_of(group_label(group)));
                for (const Row& row : group.rows)
                    rows = std::max(rows, std::min(columns_of(row.label), kMostLabel));
                for (const Strip& strip : group.strips) {
                    int& wide = group.rows.empty() ? groups : rows;
                    wide = std::max(wide, columns_of(peak_label(panel, strip)));
                }
            }
        }
        left_ = std::ceil(kMargin + kSvgLetter * (groups + rows) + (rows > 0 ? 20 : 10));
    }

    /// Measures the picture's width, and decides whether the picture has too many boxes
    /// to draw each as its own element.
    void measure_boxes() {
        double wanted = kLeastWidth;
        int digits = 1;
        for_each_row([&](const Panel&, const RowGroup&, const Row& row) {
            for (const Box& box : row.boxes)
                digits = std::max(digits, columns_of(std::to_string(box.number)));
        });
        const double least = std::max(kLeastNumbered, kSvgDigit * digits + 2);
        for_each_row([&](const Panel& panel, const RowGroup&, const Row& row) {
            for (const Box& box : row.boxes)
                if (box.number >= 0 && box.end > box.start && row.size != RowSize::small)
                    wanted =
                        std::max(wanted, least * static_cast<double>(panel.axis.end) /
                                             static_cast<double>(box.end - box.start));
        });
        width_ = chart_.grows ? std::ceil(std::min(wanted, kMostWidth)) : kWidth;
        // Boxes narrower than half a pixel are merged. If there are still too many boxes,
        // wider boxes are merged, too.
        for (by_pixel_ = true; by_pixel_ && least_pixels_ < kMostMerged;) {
            std::size_t count = 0;
            for_each_row([&](const Panel& panel, const RowGroup&, const Row& row) {
                if (count <= kMostBoxes) count += merged(row, least_time(panel)).size();
            });
            by_pixel_ = count > kMostBoxes;
            if (by_pixel_) least_pixels_ *= 2;
        }
    }

    /// Returns the shortest time of a box that is not merged.
    Picoseconds least_time(const Panel& panel) const {
        return static_cast<Picoseconds>(static_cast<double>(panel.axis.end) / width_ *
                                        least_pixels_) +
               1;
    }
    Scale scale_of(const Panel& panel) const { return {panel.axis.end, left_, width_}; }

    void draw_panel(const Panel& panel) {
        const Scale scale = scale_of(panel);
        if (!panel.title.empty() || !panel.note.empty()) {
            const std::string note = chart_.said(panel.note);
            const double room = scale.right() - kMargin - kSvgLetter * columns_of(note);
            body_ += svg_text(
                kMargin, y_ + 14,
                clipped(chart_.said(panel.title), static_cast<int>(room / 9)), "h");
            body_ += svg_text(scale.right(), y_ + 14, note, "e");
            y_ += kHeading;
        }
        const double from = y_;
        double most = 0;
        for (const RowGroup& group : panel.groups)
            for (const Strip& strip : group.strips)
                most = std::max(most, strip.peak);
        std::map<std::pair<std::size_t, std::size_t>, double> middles;
        for (std::size_t g = 0; g < drawn_groups(panel); ++g) {
            const RowGroup& group = panel.groups[g];
            body_ += svg_text(kMargin, y_ + 15, group_label(group));
            for (std::size_t r = 0; r < group.rows.size(); ++r) {
                middles[{g, r}] = y_ + height_of(group.rows[r].size) / 2;
                draw_row(panel, group, group.rows[r], scale);
            }
            for (const Strip& strip : group.strips)
                draw_strip(panel, strip, scale, most);
            y_ += kGroupGap;
        }
        draw_axis(panel.axis, scale, from);
        draw_arrows(panel, scale, middles);
    }

    void draw_row(const Panel& panel, const RowGroup& group, const Row& row,
                  const Scale& scale) {
        const double height = height_of(row.size);
        tracks_ += svg_rectangle(scale.left, y_, scale.width, height, "class=\"r\"/>\n");
        if (row.shows_idle && panel.end > 0) {
            tracks_ += svg_rectangle(scale.left, y_, scale.x(panel.end) - scale.left,
                                     height, "class=\"d\"/>\n");
            has_idle_ = true;
        }
        body_ += svg_text(scale.left - 8, y_ + height / 2 + 4,
                          clipped(row.label, kMostLabel), "e");
        if (by_pixel_) {
            draw_pixels(row, scale, height);
        } else {
            for (const DrawnBox& drawn : merged(row, least_time(panel)))
                draw_box(panel.words_of(group, *drawn.box), row, drawn, scale, height);
        }
        y_ += height + (row.size == RowSize::small ? 1 : kGap);
    }

    /// Inner boxes are thin, along the lower edge.
    void draw_box(const BoxWords& words, const Row& row, const DrawnBox& drawn,
                  const Scale& scale, double height) {
        const bool inner = drawn.box->depth > 0;
        const Look& look = chart_.looks[drawn.box->look];
        const double x = scale.x(drawn.start);
        const double width = std::max(scale.x(drawn.end) - x, kLeastBox);
        const std::string tooltip =
            drawn.count == 1
                ? words.tooltip
                : fmt::format("{} spans, the longest: {}", drawn.count, words.tooltip);
        const std::string dress =
            inner ? kInnerDress
                  : fmt::format("fill=\"{}\"{}", colour_of(look).hex(),
                                width > kLeastEdged ? " class=\"w\"" : "");
        body_ += svg_rectangle(
            x, inner ? y_ + height - kInner : y_, width, inner ? kInner : height,
            fmt::format("{}{}><title>{}</title></rect>\n", dress, data_of(words),
                        xml_escaped(chart_.said(tooltip))));
        has_inner_ = has_inner_ || inner;
        if (inner || drawn.count > 1 || row.size == RowSize::small) return;
        const bool shared = has_inner_boxes(row);
        for (const std::string& label : words.labels) {
            if (width_on_box(label) > width) continue;
            body_ +=
                svg_text(x + width / 2, y_ + (height - (shared ? kInner : 0)) / 2 + 4,
                         label, colour_of(look).is_dark() ? "b v" : "b");
            has_numbers_ = has_numbers_ || drawn.box->number >= 0;
            break;
        }
    }

    static bool has_inner_boxes(const Row& row) {
        return std::ranges::any_of(row.boxes,
                                   [](const Box& box) { return box.depth > 0; });
    }

    /// Draws very many boxes: each pixel has the colour of the box that fills most of it.
    /// Each run of pixels is one stroke, as high as the row.
    void draw_pixels(const Row& row, const Scale& scale, double height) {
        const std::vector<const Box*> boxes = outer_boxes(row);
        const std::vector<int> shown =
            fill_cells(boxes, {scale.end, static_cast<int>(scale.width)});
        const auto look_at = [&](std::size_t c) {
            return shown[c] < 0 ? -1 : boxes[shown[c]]->look;
        };
        struct Path {
            std::size_t at = 0;  ///< the column where the pen is
            std::string moves;
        };
        std::map<int, Path> paths;
        for (std::size_t c = 0; c < shown.size();) {
            std::size_t next = c + 1;
            while (next < shown.size() && look_at(next) == look_at(c))
                ++next;
            if (look_at(c) >= 0) {
                Path& path = paths[look_at(c)];
                path.moves += fmt::format("m{} 0h{}", c - path.at, next - c);
                path.at = next;
            }
            c = next;
        }
        for (const auto& [look, path] : paths)
            body_ += fmt::format(
                "<path d=\"M{} {}{}\" stroke=\"{}\" stroke-width=\"{}\"/>\n",
                svg_number(scale.left), svg_number(y_ + height / 2), path.moves,
                colour_of(chart_.looks[look]).hex(), svg_number(height));
    }

    /// Draws the whole stack first, then the stack without its top layer, and so on. Each
    /// drawing covers part of the drawing before.
    void draw_strip(const Panel& panel, const Strip& strip, const Scale& scale,
                    double most) {
        tracks_ += svg_rectangle(scale.left, y_, scale.width, kStrip, "class=\"r\"/>\n");
        body_ += svg_text(scale.left - 8, y_ + 13, chart_.said(strip.label), "e");
        body_ += svg_text(scale.left - 8, y_ + 26, peak_label(panel, strip), "e");
        const std::vector<Level> levels = levels_by_pixel(strip.levels, scale);
        for (std::size_t layers = panel.layers.size(); layers > 0 && most > 0; --layers) {
            double peak = 0;
            for (const Level& level : strip.levels)
                peak = std::max(peak, level.amounts[layers - 1]);
            if (peak <= 0) continue;
            const Look& look = chart_.looks[panel.layers[layers - 1]];
            body_ +=
                fmt::format("<path d=\"{}\" fill=\"{}\"><title>{}</title></path>\n",
                            area(levels, layers, scale, most, scale.x(panel.end)),
                            colour_of(look).hex(),
                            xml_escaped(chart_.said(fmt::format(
                                "{}: at most {}", look.words, panel.amount_text(peak)))));
        }
        if (strip.peak > 0)
            body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"2.5\"/>\n",
                                 svg_number(scale.x(strip.peak_at)),
                                 svg_number(y_ + kStrip * (1 - strip.peak / most)));
        y_ += kStrip + kGap;
    }

    /// Returns the area below the sum of the first `layers` layers.
    std::string area(const std::vector<Level>& levels, std::size_t layers,
                     const Scale& scale, double most, double right) const {
        const double bottom = y_ + kStrip;
        std::string drawn = svg_number(bottom);
        std::string path =
            fmt::format("M{} {}", svg_number(scale.x(levels.front().time)), drawn);
        for (const Level& level : levels) {
            double amount = 0;
            for (std::size_t i = 0; i < layers; ++i)
                amount += level.amounts[i];
            const std::string y = svg_number(bottom - kStrip * amount / most);
            if (y != drawn)
                path += fmt::format("H{}V{}", svg_number(scale.x(level.time)), y);
            drawn = y;
        }
        return fmt::format("{}H{}V{}Z", path, svg_number(right), svg_number(bottom));
    }

    /// Draws ticks below, and faint lines that begin at height `from`.
    void draw_axis(const Axis& axis, const Scale& scale, double from) {
        constexpr double kTickDigit = 7;
        const int most = static_cast<int>(
            scale.width / std::max(kTickDigit * axis.label_size() + 24, 70.));
        std::string path;
        for (const auto& [time, label] : axis.ticks(most)) {
            path += fmt::format("M{} {}V{}", svg_number(scale.x(time)), svg_number(from),
                                svg_number(y_ + 2));
            body_ += svg_text(scale.x(time), y_ + 14, label, "m");
        }
        lines_ += fmt::format("<path d=\"{}\" class=\"g\"/>\n", path);
        body_ += svg_text(
            scale.left - 16, y_ + 14,
            axis.unit.empty()
                ? chart_.said("time")
                : fmt::format(fmt::runtime(chart_.said("time in {}")), axis.unit),
            "e");
        y_ += kAxis;
    }

    void draw_arrows(
        const Panel& panel, const Scale& scale,
        const std::map<std::pair<std::size_t, std::size_t>, double>& middles) {
        for (const Arrow& arrow : panel.arrows) {
            const auto from = middles.find({arrow.from.group, arrow.from.row});
            const auto to = middles.find({arrow.to.group, arrow.to.row});
            if (from == middles.end() || to == middles.end()) continue;
            body_ += fmt::format(
                "<path d=\"M{} {}L{} {}\" class=\"a\" marker-end=\"url(#head)\">"
                "<title>{}</title></path>\n",
                svg_number(scale.x(arrow.start)), svg_number(from->second),
                svg_number(scale.x(arrow.end)), svg_number(to->second),
                xml_escaped(chart_.said(arrow.tooltip)));
        }
    }

    void draw_legend() {
        SvgLegend legend(kMargin, left_ + width_ + kRight, y_);
        const auto add_idle = [&] {
            if (has_idle_) legend.add({"class=\"d\""}, chart_.said("idle"));
            if (has_inner_)
                legend.add({kInnerDress}, chart_.said("operation in a phase"));
            if (has_numbers_) legend.add({}, chart_.said("0 1 2: micro-batches"));
            has_idle_ = has_inner_ = has_numbers_ = false;
        };
        for (const LegendEntry& entry : chart_.legend) {
            if (!entry.heading.empty()) {
                add_idle();
                legend.heading(chart_.said(entry.heading));
            }
            std::vector<std::string> dresses;
            for (const int look : entry.looks)
                dresses.push_back(
                    fmt::format("fill=\"{}\"", colour_of(chart_.looks[look]).hex()));
            legend.add(dresses, chart_.said(entry.words));
        }
        add_idle();
        std::size_t undrawn = 0;
        for (const Panel& panel : chart_.panels) {
            std::size_t members = 0;
            for (std::size_t g = kMostGroups; g < panel.groups.size(); ++g)
                members += panel.groups[g].members.size();
            undrawn = std::max(undrawn, members);
        }
        if (undrawn > 0)
            legend.add({}, fmt::format("{} more {} are not drawn", undrawn,
                                       chart_.member_word(2)));
        body_ += legend.svg();
        y_ = legend.bottom();
    }

    const Chart& chart_;
    double left_ = 0;
    double width_ = 0;
    double least_pixels_ = 0.5;
    bool by_pixel_ = false;
    double y_ = kMargin - 4;
    // These things belong in the legend if they were drawn.
    bool has_idle_ = false;
    bool has_inner_ = false;
    bool has_numbers_ = false;
    // Layers of the picture, the lowest first.
    std::string tracks_;
    std::string lines_;
    std::string body_;
};

}  // namespace

std::string chart_svg(const Chart& chart) {
    return svg_document(chart_part(chart));
}

SvgPart chart_part(const Chart& chart) {
    return SvgPicture(chart).draw();
}

const char* svg_definitions() {
    return kDefinitions;
}

std::string svg_document(const SvgPart& picture, const std::string& definitions) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\">\n{2}{3}{4}<rect width=\"100%\" height=\"100%\" "
        "fill=\"#fff\"/>\n{5}</svg>\n",
        svg_number(picture.width), svg_number(picture.height), kDefinitions, kStyle,
        definitions, picture.svg);
}

std::string xml_escaped(std::string_view text) {
    std::string escaped;
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = decode_utf8(text, at);
        const char c = text[at];
        // XML forbids U+FFFE and U+FFFF.
        if (!point.valid || point.value == 0xFFFE || point.value == 0xFFFF)
            escaped += '?';
        else if (c == '&')
            escaped += "&amp;";
        else if (c == '<')
            escaped += "&lt;";
        else if (c == '>')
            escaped += "&gt;";
        else if (c == '"')
            escaped += "&quot;";
        else if (point.value < 0x20 && c != '\n')
            escaped += ' ';
        else
            escaped += text.substr(at, point.bytes);
        at += point.bytes;
    }
    return escaped;
}

std::string clipped(const std::string& text, int most) {
    if (columns_of(text) <= most) return text;
    return text.substr(0, bytes_in_columns(text, most - 1)) + "…";
}

std::string svg_number(double value) {
    std::string text = fmt::format("{:.2f}", value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text == "-0" ? "0" : text;
}

std::string svg_text(double x, double y, std::string_view text,
                     std::string_view classes) {
    if (text.empty()) return "";
    return fmt::format(
        "<text x=\"{}\" y=\"{}\"{}>{}</text>\n", svg_number(x), svg_number(y),
        classes.empty() ? "" : fmt::format(" class=\"{}\"", classes), xml_escaped(text));
}

std::string svg_rectangle(double x, double y, double width, double height,
                          const std::string& dress) {
    return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}",
                       svg_number(x), svg_number(y), svg_number(width),
                       svg_number(height), dress);
}

void SvgLegend::heading(const std::string& words) {
    next_line();
    add({}, words + ":");
}

void SvgLegend::add(const std::vector<std::string>& dresses, const std::string& words) {
    constexpr double kSwatch = 12;
    const double swatches = kSwatch * static_cast<double>(dresses.size());
    const double space = dresses.empty() ? 0 : 5;
    const double width = swatches + space + kSvgLetter * columns_of(words);
    if (x_ + width > right_) next_line();
    double x = x_;
    for (const std::string& dress : dresses) {
        const double lower = dress == kInnerDress ? kSwatch - kInner : 0;
        svg_ += svg_rectangle(x, y_ + lower, kSwatch, kSwatch - lower, dress + "/>\n");
        x += kSwatch;
    }
    svg_ += svg_text(x + space, y_ + 10, words);
    x_ += width + 18;
}

double SvgLegend::bottom() const {
    return y_ + kLine;
}

void SvgLegend::next_line() {
    if (x_ == left_) return;
    x_ = left_;
    y_ += kLine;
}

}  // namespace lockstep
