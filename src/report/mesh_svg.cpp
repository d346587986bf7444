#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/chart/look.hpp"
#include "src/report/mesh_layout.hpp"
#include "src/report/mesh_picture.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

constexpr int kMostLabelled = 96;
constexpr int kMostNumbered = 2'048;

// Pixels.
constexpr double kMeshMargin = 14;
constexpr double kMeshWidth = 1'150;  ///< approximate limit on the width of a row
constexpr double kMeshRatio = 2;
constexpr double kMeshGap = 4;
constexpr double kFrame = 6;  ///< between a frame and its boxes
constexpr double kFrameTitle = 14;
constexpr double kTextLine = 13;
constexpr double kWidestBox = 190;

/// How a device is drawn: its box, and the text on it.
struct DeviceLook {
    double width = 7;
    double height = 7;
    double gap = 1;
    bool numbered = false;
    bool labelled = false;
};

DeviceLook look_of(const MeshPicture& picture) {
    const int ranks = picture.shape.ranks();
    if (ranks > kMostNumbered) return {};
    if (ranks > kMostLabelled) return {32, 18, 2, true, false};
    int columns = 7;  // enough for the title of a frame around one box
    std::size_t lines = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        columns = std::max(columns, columns_of(picture.places(rank)));
        const std::vector<std::string> labels = picture.labels_of(rank);
        lines = std::max(lines, labels.size());
        for (const std::string& label : labels)
            columns = std::max(columns, columns_of(label));
    }
    return {std::min(kSvgDigit * columns + 10, kWidestBox),
            2 * kTextLine + 8 + kTextLine * static_cast<double>(lines), kMeshGap, true,
            true};
}

/// Boxes of one node that form a rectangle of rows and columns.
struct Stretch {
    int node = 0;
    int top = 0;
    int bottom = 0;
    int left = 0;
    int right = 0;
};

class MeshSvg {
  public:
    explicit MeshSvg(const MeshPicture& picture)
        : picture_(picture),
          look_(look_of(picture)),
          layout_(picture.shape,
                  {static_cast<int>(kMeshWidth / (look_.width + look_.gap)), kMeshRatio,
                   look_.width + look_.gap, look_.height + look_.gap}) {}

    SvgPart draw() {
        find_stretches();
        place_columns();
        draw_heading();
        place_rows();
        draw_row_places();
        for (const Stretch& stretch : stretches_)
            draw_frame(stretch);
        for (int row = 0; row < layout_.rows(); ++row)
            for (int column = 0; column < layout_.columns(); ++column)
                draw_device(row, column);
        draw_legend();
        return {width_, y_, frames_ + body_};
    }

  private:
    bool has_frames() const { return picture_.per_node > 1; }
    int node_at(int row, int column) const {
        return picture_.node_of(layout_.rank_at(row, column));
    }

    /// Rows of a node that have the same columns become one stretch.
    void find_stretches() {
        if (!has_frames()) return;
        std::map<int, std::size_t> last;  // of each node
        for (int row = 0; row < layout_.rows(); ++row)
            for (int column = 0; column < layout_.columns();) {
                const int node = node_at(row, column);
                const int left = column;
                while (column < layout_.columns() && node_at(row, column) == node)
                    ++column;
                if (node < 0) continue;
                const auto found = last.find(node);
                if (found != last.end()) {
                    Stretch& above = stretches_[found->second];
                    if (above.left == left && above.right == column - 1) {
                        above.bottom = row;
                        continue;
                    }
                }
                last[node] = stretches_.size();
                stretches_.push_back({node, row, row, left, column - 1});
            }
    }

    /// Computes where each column is. Leaves room where frames begin and end.
    void place_columns() {
        std::vector<bool> edge(static_cast<std::size_t>(layout_.columns()) + 1);
        for (const Stretch& stretch : stretches_)
            edge[static_cast<std::size_t>(stretch.left)] =
                edge[static_cast<std::size_t>(stretch.right) + 1] = true;
        place_row_heads();
        double x = left_;
        for (int column = 0; column < layout_.columns(); ++column) {
            if (edge[static_cast<std::size_t>(column)]) x += kFrame;
            xs_.push_back(x);
            x += look_.width;
            if (edge[static_cast<std::size_t>(column) + 1]) x += kFrame;
            x += look_.gap;
        }
        width_ = x + kMeshMargin;
    }

    /// Places a column of text for each axis, left of the boxes.
    void place_row_heads() {
        const std::vector<std::string> axes = layout_.row_axes();
        head_lefts_.assign(axes.size(), 0);
        std::vector<int> widest(axes.size());
        for (int row = 0; row < layout_.rows(); ++row) {
            const std::vector<std::string> places = layout_.row_places(row);
            for (std::size_t i = 0; i < axes.size(); ++i)
                widest[i] =
                    std::max(widest[i], columns_of(axes[i]) + 1 + columns_of(places[i]));
        }
        double x = kMeshMargin;
        for (std::size_t i = 0; i < axes.size(); ++i) {
            head_lefts_[i] = x;
            x += kSvgLetter * widest[i] + 10;
        }
        int widest_name = 0;
        for (const std::string& axis : layout_.column_axes())
            widest_name = std::max(widest_name, columns_of(axis));
        left_ = std::max(x, kMeshMargin + kSvgLetter * widest_name + 10);
    }

    void draw_heading() {
        const std::string note = picture_.said(picture_.note());
        const std::string title = picture_.said(picture_.title);
        const double note_width = kSvgLetter * columns_of(note);
        // A bold letter of a heading takes about 9 pixels.
        width_ = std::max(width_, 2 * kMeshMargin + note_width +
                                      9 * std::min(columns_of(title) + 2, 60));
        const double room = width_ - 2 * kMeshMargin - note_width;
        body_ +=
            svg_text(kMeshMargin, 24, clipped(title, static_cast<int>(room / 9)), "h");
        body_ += svg_text(width_ - kMeshMargin, 24, note, "e");
        y_ = 36;
        for (const std::string& axis : layout_.column_axes())
            draw_column_places(axis);
    }

    /// Draws the places along an axis in a line above their boxes.
    void draw_column_places(const std::string& axis) {
        y_ += kTextLine + 2;
        body_ += svg_text(left_ - 8, y_, axis, "e");
        const int wide = layout_.columns_a_place(axis);
        const int size = picture_.shape.size(axis);
        double end = 0;  // of the previous label
        for (int column = 0; column < layout_.columns(); column += wide) {
            const std::string place = std::to_string(column / wide % size);
            const double middle =
                (x_of(column) + x_of(column + wide - 1) + look_.width) / 2;
            const double half = kSvgLetter * columns_of(place) / 2;
            if (middle - half < end) continue;
            body_ += svg_text(middle, y_, place, "m");
            end = middle + half + 3;
        }
    }

    double x_of(int column) const { return xs_[static_cast<std::size_t>(column)]; }
    double y_of(int row) const { return ys_[static_cast<std::size_t>(row)]; }

    void place_rows() {
        const auto rows = static_cast<std::size_t>(layout_.rows());
        std::vector<double> above(rows + 1);
        for (const Stretch& stretch : stretches_) {
            double& room = above[static_cast<std::size_t>(stretch.top)];
            room = std::max(room, kFrame + (has_title(stretch) ? kFrameTitle : 0));
        }
        std::vector<bool> ends(rows);
        for (const Stretch& stretch : stretches_)
            ends[static_cast<std::size_t>(stretch.bottom)] = true;
        y_ += 8;
        for (std::size_t row = 0; row < rows; ++row) {
            y_ += above[row];
            ys_.push_back(y_);
            y_ += look_.height + look_.gap + (ends[row] ? kFrame : 0);
        }
    }

    /// Returns whether boxes are numbered and the frame is wide enough for its title.
    bool has_title(const Stretch& stretch) const {
        return look_.numbered &&
               kSvgLetter * columns_of(title_of(stretch)) <
                   x_of(stretch.right) + look_.width - x_of(stretch.left);
    }
    std::string title_of(const Stretch& stretch) const {
        return picture_.said(fmt::format("node {}", stretch.node));
    }

    void draw_frame(const Stretch& stretch) {
        const double title = has_title(stretch) ? kFrameTitle : 0;
        const double x = x_of(stretch.left) - kFrame;
        const double y = y_of(stretch.top) - kFrame - title;
        frames_ += svg_rectangle(x, y, x_of(stretch.right) + look_.width + kFrame - x,
                                 y_of(stretch.bottom) + look_.height + kFrame - y,
                                 "class=\"n\" rx=\"4\"/>\n");
        if (title > 0) body_ += svg_text(x + kFrame, y + 14, title_of(stretch));
    }

    /// Draws the places that differ from the row above, if there is room for a line of
    /// text.
    void draw_row_places() {
        const std::vector<std::string> axes = layout_.row_axes();
        std::vector<std::string> shown(axes.size());
        double free = 0;
        for (int row = 0; row < layout_.rows(); ++row) {
            const double middle = y_of(row) + look_.height / 2 + 4;
            if (middle - kTextLine + 2 < free) continue;
            const std::vector<std::string> places = layout_.row_places(row);
            bool changed = false;
            for (std::size_t i = 0; i < axes.size(); ++i) {
                changed = changed || places[i] != shown[i];
                if (changed)
                    body_ += svg_text(head_lefts_[i], middle, axes[i] + " " + places[i]);
            }
            shown = places;
            free = middle;
        }
    }

    void draw_device(int row, int column) {
        const int rank = layout_.rank_at(row, column);
        if (rank < 0) return;
        const double x = x_of(column), y = y_of(row);
        const std::string colour = colour_of_place(picture_.colour_place(rank)).hex();
        std::string dress = fmt::format("fill=\"{}\"", colour);
        if (rank == picture_.marked) dress += " stroke=\"#111\" stroke-width=\"2\"";
        if (!look_.numbered) {
            body_ += svg_rectangle(x, y, look_.width, look_.height, dress + "/>\n");
            return;
        }
        body_ += svg_rectangle(x, y, look_.width, look_.height,
                               fmt::format("{}><title>{}</title></rect>\n", dress,
                                           xml_escaped(tooltip(rank))));
        const double middle = x + look_.width / 2;
        if (!look_.labelled) {
            body_ +=
                svg_text(middle, y + look_.height / 2 + 4, std::to_string(rank), "b");
            return;
        }
        std::vector<std::string> lines{picture_.places(rank)};
        for (std::string& label : picture_.labels_of(rank))
            lines.push_back(std::move(label));
        const double room = kTextLine * static_cast<double>(lines.size() + 1);
        double line = y + (look_.height - room) / 2 + kTextLine - 2;
        body_ += svg_text(middle, line, std::to_string(rank), "b k");
        const int most = static_cast<int>((look_.width - 6) / kSvgDigit);
        for (const std::string& text : lines)
            body_ += svg_text(middle, line += kTextLine, clipped(text, most), "b");
    }

    std::string tooltip(int rank) const {
        std::string text = picture_.said(fmt::format("device {}", rank));
        if (const std::string places = picture_.places(rank); !places.empty())
            text += ": " + places;
        if (picture_.nodes() > 1)
            text += "\n" + picture_.said(fmt::format("node {}", picture_.node_of(rank)));
        for (const std::string& label : picture_.labels_of(rank))
            text += "\n" + label;
        return text;
    }

    void draw_legend() {
        y_ += 6;
        if (picture_.coloured.empty()) return;
        SvgLegend legend(kMeshMargin, width_ - kMeshMargin, y_);
        const int size = picture_.shape.size(picture_.coloured);
        for (int place = 0; place < std::min(size, kPlaceColours); ++place)
            legend.add({fmt::format("fill=\"{}\"", colour_of_place(place).hex())},
                       fmt::format("{} {}", picture_.coloured, place));
        if (size > kPlaceColours) legend.add({}, "…");
        body_ += legend.svg();
        y_ = legend.bottom();
    }

    const MeshPicture& picture_;
    DeviceLook look_;
    MeshLayout layout_;
    std::vector<Stretch> stretches_;
    std::vector<double> head_lefts_;  ///< where the text of each row axis begins
    std::vector<double> xs_;          ///< of columns
    std::vector<double> ys_;          ///< of rows
    double left_ = 0;
    double width_ = 0;
    double y_ = 0;
    std::string frames_;  ///< below the rest
    std::string body_;
};

}  // namespace

SvgPart mesh_part(const MeshPicture& picture) {
    return MeshSvg(picture).draw();
}

std::string mesh_svg(const MeshPicture& picture) {
    return svg_document(mesh_part(picture));
}

}  // namespace lockstep
