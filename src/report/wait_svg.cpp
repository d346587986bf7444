#include "src/report/wait_svg.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "src/report/svg_parts.hpp"
#include "src/report/timeline.hpp"
#include "src/report/wait_boxes.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

constexpr double kMargin = 24;
constexpr double kWidth = 330;  // of a box
constexpr double kHeight = 62;
constexpr double kColumn = 430;  // from one to the next
constexpr double kRow = 108;
constexpr double kLeastWidth = 1180;
constexpr int kLetters = 46;  // that fit into a box

struct Look {
    const char* stroke;
    const char* fill;
    const char* dashes;
    const char* head;  ///< the marker of its arrows
    const char* words;
};
// Vermillion and blue of Okabe and Ito, and grey.
constexpr Look kCircle{"#d55e00", "#fbe9dd", "none", "wait-circle",
                       "waits in the circle"};
constexpr Look kWaits{"#0072b2", "#e5f1f8", "none", "wait-arrow", "waits"};
constexpr Look kIdle{"#777777", "#eeeeee", "5 3", "wait-arrow", "waits for none"};

const Look& look_of(const WaitBox& box) {
    return box.in_circle ? kCircle : box.waits ? kWaits : kIdle;
}

/// Places on the picture.
class Plan {
  public:
    explicit Plan(double top) : top_(top) {}
    double left(const WaitBox& box) const {
        return kMargin + 40 + static_cast<double>(box.column) * kColumn;
    }
    double top(const WaitBox& box) const {
        return top_ + static_cast<double>(box.row) * kRow;
    }
    double middle(const WaitBox& box) const { return top(box) + kHeight / 2; }

  private:
    double top_;
};

std::string text_at(double x, double y, const std::string& style,
                    const std::string& text) {
    return fmt::format(
        "<text x=\"{}\" y=\"{}\" style=\"font-family:'DejaVu Sans',Arial,"
        "sans-serif;fill:#111;{}\">{}</text>\n",
        svg_number(x), svg_number(y), style, xml_escaped(text));
}

/// At most `most` characters; the end, or with `keep_end` the beginning, goes.
std::string cut(const std::string& text, int most, bool keep_end = false) {
    if (columns_of(text) <= most) return text;
    const auto begins = [&](std::size_t i) {
        return i == text.size() || (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    };
    std::vector<std::size_t> starts;
    for (std::size_t i = 0; i <= text.size(); ++i)
        if (begins(i)) starts.push_back(i);
    const auto kept = static_cast<std::size_t>(most - 1);
    return keep_end ? "…" + text.substr(starts[starts.size() - 1 - kept])
                    : text.substr(0, starts[kept]) + "…";
}

std::string box_svg(const WaitBox& box, const Plan& plan) {
    const Look& look = look_of(box);
    const double x = plan.left(box);
    const double y = plan.top(box);
    std::string svg = fmt::format(
        "<g><title>{}</title>\n<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "rx=\"6\" fill=\"{}\" stroke=\"{}\" stroke-width=\"{}\" "
        "stroke-dasharray=\"{}\"/>\n",
        xml_escaped(ranks_text(box.ranks) + "\n" + box.operation + "\n" + box.place),
        svg_number(x), svg_number(y), svg_number(kWidth), svg_number(kHeight), look.fill,
        look.stroke, box.in_circle ? "3" : "1.5", look.dashes);
    svg += text_at(x + 10, y + 19, "font-size:13px;font-weight:bold",
                   cut(ranks_text(box.ranks), kLetters - 8));
    svg += text_at(x + 10, y + 36, "font-size:11px", cut(box.operation, kLetters));
    svg += text_at(x + 10, y + 52, "font-size:11px", cut(box.place, kLetters, true));
    return svg + "</g>\n";
}

/// From the one's edge to the other's; two that wait for each other have two arrows side
/// by side.
std::string path_of(const WaitBox& from, const WaitBox& to, const Plan& plan) {
    constexpr double kApart = 9;
    const double y1 = plan.middle(from);
    const double y2 = plan.middle(to);
    const auto path = [](double ax, double ay, double bx, double by, double cx, double cy,
                         double dx, double dy) {
        return fmt::format("M{} {}C{} {} {} {} {} {}", svg_number(ax), svg_number(ay),
                           svg_number(bx), svg_number(by), svg_number(cx), svg_number(cy),
                           svg_number(dx), svg_number(dy));
    };
    if (&from == &to) {
        const double x = plan.left(from);
        return path(x, y1 + 12, x - 44, y1 + 22, x - 44, y1 - 22, x, y1 - 12);
    }
    if (from.column == to.column) {
        const bool down = to.row > from.row;
        if (std::max(from.row, to.row) - std::min(from.row, to.row) > 1) {
            const double x = plan.left(from) + (down ? 0 : kWidth);
            const double out = x + (down ? -44 : 44);
            return path(x, y1, out, y1, out, y2, x, y2);
        }
        const double x = plan.left(from) + kWidth / 2 + (down ? -kApart : kApart);
        const double half = down ? kHeight / 2 : -kHeight / 2;
        return path(x, y1 + half, x, y1 + half, x, y2 - half, x, y2 - half);
    }
    const bool right = to.column > from.column;
    const double shift = right ? -kApart : kApart;
    const double x1 = plan.left(from) + (right ? kWidth : 0);
    const double x2 = plan.left(to) + (right ? 0 : kWidth);
    const double bend = right ? 50 : -50;
    return path(x1, y1 + shift, x1 + bend, y1 + shift, x2 - bend, y2 + shift, x2,
                y2 + shift);
}

std::string arrows_svg(const std::vector<WaitBox>& boxes, const Plan& plan) {
    const auto next_in_circle = [&](const WaitBox& from, const WaitBox& to) {
        return from.in_circle && to.in_circle;
    };
    std::string svg;
    for (const WaitBox& from : boxes) {
        for (const std::size_t next : from.next) {
            const bool circle = next_in_circle(from, boxes[next]);
            const Look& look = circle ? kCircle : kWaits;
            svg += fmt::format(
                "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
                "marker-end=\"url(#{})\"/>\n",
                path_of(from, boxes[next], plan), look.stroke, circle ? "3" : "1.5",
                look.head);
        }
    }
    return svg;
}

std::string marker(const Look& look) {
    return fmt::format(
        "<marker id=\"{}\" viewBox=\"0 0 10 10\" refX=\"10\" refY=\"5\" "
        "markerUnits=\"userSpaceOnUse\" markerWidth=\"11\" markerHeight=\"11\" "
        "orient=\"auto\"><path d=\"M0 0L10 5L0 10Z\" fill=\"{}\"/></marker>",
        look.head, look.stroke);
}

/// What the colours mean, of those that are there.
std::string legend_svg(const std::vector<WaitBox>& boxes, double y) {
    std::string svg;
    double x = kMargin + 40;
    for (const Look* look : {&kCircle, &kWaits, &kIdle}) {
        if (std::ranges::none_of(boxes,
                                 [&](const auto& box) { return &look_of(box) == look; }))
            continue;
        svg += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"12\" "
            "fill=\"{}\" stroke=\"{}\" stroke-dasharray=\"{}\"/>\n",
            svg_number(x), svg_number(y), look->fill, look->stroke, look->dashes);
        svg += text_at(x + 20, y + 10, "font-size:11px", look->words);
        x += 170;
    }
    return svg +
           text_at(x, y + 10, "font-size:11px", "an arrow leads to whom is waited for");
}

/// Title and sentence; moves `y` below them.
std::string heading_svg(const Diagnosis& diagnosis, double& y) {
    constexpr int kColumns = 165;
    std::string svg = text_at(
        kMargin, y, "font-size:15px;font-weight:bold",
        (diagnosis.fault.empty() ? "" : diagnosis.fault + ": ") + diagnosis.title);
    std::istringstream lines(wrapped(diagnosis.sentence, kColumns));
    for (std::string line; std::getline(lines, line);)
        svg += text_at(kMargin, y += 18, "font-size:12px", line);
    y += 30;
    return svg;
}

/// A picture inside another: with its place, and its height.
std::string nested(const std::string& svg, double y, double& height) {
    const std::string key = " height=\"";
    height = std::atof(svg.c_str() + svg.find(key) + key.size());
    return fmt::format("<svg x=\"0\" y=\"{}\"{}", svg_number(y), svg.substr(4));
}

}  // namespace

std::string wait_svg(const Diagnosis& diagnosis, const RunReport* report) {
    const std::vector<WaitBox> boxes = wait_boxes(diagnosis);
    double y = 30;
    std::string body = heading_svg(diagnosis, y);
    const Plan plan(y);
    double width = kLeastWidth;
    for (const WaitBox& box : boxes) {
        width = std::max(width, plan.left(box) + kWidth + 60);
        y = std::max(y, plan.top(box) + kRow);
    }
    body += arrows_svg(boxes, plan);
    for (const WaitBox& box : boxes)
        body += box_svg(box, plan);
    body += boxes.empty() ? text_at(kMargin, y, "font-size:12px", "No rank waited.")
                          : legend_svg(boxes, y);
    y += 32;
    if (report != nullptr && !report->trace.empty()) {
        double height = 0;
        body += nested(timeline_svg(*report, "up to the stop"), y, height);
        y += height;
    }
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\">\n<defs>{2}{3}</defs>\n<rect width=\"100%\" "
        "height=\"100%\" fill=\"#fff\"/>\n{4}</svg>\n",
        svg_number(width), svg_number(y), marker(kCircle), marker(kWaits), body);
}

}  // namespace lockstep
