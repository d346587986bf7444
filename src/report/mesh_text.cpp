#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/chart/look.hpp"
#include "src/report/mesh_layout.hpp"
#include "src/report/mesh_picture.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

constexpr int kMostLabelledInText = 64;
constexpr int kMostRows = 20;  ///< if there are more, only the first and last are drawn
constexpr int kFirstRows = 8;
constexpr int kLastRows = 2;
constexpr int kLeastMeshWidth = 40;
constexpr double kTextRatio = 2.5;  ///< width to height; a line counts as 2 columns

/// Returns the line character that has arms in these directions.
const char* corner_of(bool up, bool right, bool down, bool left) {
    constexpr const char* kCorners[16] = {" ", "╵", "╶", "└", "╷", "│", "┌", "├",
                                          "╴", "┘", "─", "┴", "┐", "┤", "┬", "┼"};
    return kCorners[(up ? 1 : 0) + (right ? 2 : 0) + (down ? 4 : 0) + (left ? 8 : 0)];
}

std::string without_end(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

class MeshText {
  public:
    MeshText(const MeshPicture& picture, const TextStyle& style)
        : picture_(picture),
          style_(style),
          width_(std::max(style.width, kLeastMeshWidth)),
          labels_(!picture.labels.empty() &&
                  picture.shape.ranks() <= kMostLabelledInText),
          layout_(picture.shape, {}) {
        measure_cell();
        fit();
    }

    std::string text() {
        std::string text = wrapped(heading(), width_) + "\n" + column_heads();
        for (int row = 0; row < layout_.rows(); ++row) {
            if (is_left_out(row)) {
                if (!is_left_out(row - 1)) text += left_out_text();
                continue;
            }
            text += edge_line(row) + row_lines(row);
        }
        return text + edge_line(layout_.rows()) + legend();
    }

  private:
    void measure_cell() {
        cell_ = columns_of(std::to_string(picture_.shape.ranks() - 1)) + 2;
        lines_ = 1;
        if (!labels_) return;
        for (int rank = 0; rank < picture_.shape.ranks(); ++rank) {
            const std::vector<std::string> labels = picture_.labels_of(rank);
            lines_ = std::max(lines_, static_cast<int>(labels.size()) + 1);
            for (const std::string& label : labels)
                cell_ = std::max(cell_, columns_of(label) + 2);
        }
    }

    /// Chooses the largest layout that fits between the texts on the left and on the
    /// right.
    void fit() {
        for (int most = std::max(width_ / cell_, 1); most >= 1; --most) {
            layout_ = MeshLayout(picture_.shape, {most, kTextRatio, double(cell_),
                                                  2. * (lines_ + (labels_ ? 1 : 0))});
            measure_heads();
            const int sides = head_columns_ + 1 + node_columns();
            const int inner = layout_.columns() * cell_ + upright_edges();
            if (sides + inner <= width_) return;
        }
    }

    void measure_heads() {
        const std::vector<std::string> axes = layout_.row_axes();
        heads_.assign(axes.size(), 0);
        for (int row = 0; row < layout_.rows(); ++row) {
            const std::vector<std::string> places = layout_.row_places(row);
            for (std::size_t i = 0; i < axes.size(); ++i)
                heads_[i] =
                    std::max(heads_[i], columns_of(axes[i]) + 2 + columns_of(places[i]));
        }
        head_columns_ = 0;
        for (const int columns : heads_)
            head_columns_ += columns;
        for (const std::string& axis : layout_.column_axes())
            head_columns_ = std::max(head_columns_, columns_of(axis) + 1);
        head_columns_ = std::min(head_columns_, width_ / 2);
    }

    bool has_frames() const { return picture_.per_node > 1; }
    int node_at(int row, int column) const {
        const bool outside =
            row < 0 || row >= layout_.rows() || column < 0 || column >= layout_.columns();
        return outside ? -1 : picture_.node_of(layout_.rank_at(row, column));
    }
    /// Returns whether there is an edge between a row and the row above it.
    bool has_edge_above(int row, int column) const {
        return has_frames() && node_at(row, column) != node_at(row - 1, column);
    }
    /// Returns whether there is an edge between a column and the column left of it.
    bool has_edge_left(int row, int column) const {
        return has_frames() && node_at(row, column) != node_at(row, column - 1);
    }
    /// Returns whether any row has an edge left of the column. If so, one column of the
    /// text is for the edge.
    bool has_upright_edge(int column) const {
        for (int row = 0; row < layout_.rows(); ++row)
            if (has_edge_left(row, column)) return true;
        return false;
    }
    int upright_edges() const {
        int count = 0;
        for (int column = 0; column <= layout_.columns(); ++column)
            count += has_upright_edge(column) ? 1 : 0;
        return count;
    }

    std::string nodes_text(int first, int last) const {
        return picture_.said(first == last ? fmt::format("node {}", first)
                                           : fmt::format("nodes {}–{}", first, last));
    }
    /// Returns the number of columns for the names of nodes, on the right.
    int node_columns() const {
        if (!has_frames()) return 0;
        const int last = picture_.nodes() - 1;
        return 1 + columns_of(layout_.columns() > picture_.per_node
                                  ? nodes_text(last, last + 1)
                                  : nodes_text(last, last));
    }

    std::string heading() const {
        const std::string title = picture_.said(picture_.title);
        return title + (title.empty() ? "" : ": ") + picture_.said(picture_.note());
    }

    bool is_left_out(int row) const {
        return layout_.rows() > kMostRows && row >= kFirstRows &&
               row < layout_.rows() - kLastRows;
    }
    std::string left_out_text() const {
        const int rows = layout_.rows() - kFirstRows - kLastRows;
        return std::string(static_cast<std::size_t>(head_columns_), ' ') + "⋮ " +
               fmt::format(fmt::runtime(picture_.said("{} more rows")), rows) + "\n";
    }

    /// Returns a line for each axis along which columns differ.
    std::string column_heads() const {
        std::string text;
        for (const std::string& axis : layout_.column_axes()) {
            const int wide = layout_.columns_a_place(axis);
            const int size = picture_.shape.size(axis);
            std::string line = head_text(axis);
            for (int column = 0; column <= layout_.columns(); ++column) {
                if (has_upright_edge(column)) line += " ";
                if (column == layout_.columns()) break;
                const std::string place =
                    column % wide == 0 ? std::to_string(column / wide % size) : "";
                line += cell_text(place, "");
            }
            text += without_end(line);
        }
        return text;
    }

    /// Numbers are aligned on the right, labels on the left.
    std::string cell_text(const std::string& text, const std::string& mark) const {
        if (labels_) return pad_right((mark.empty() ? " " : mark) + text, cell_);
        return pad_left(text, cell_ - 1) + " ";
    }

    /// Returns the frames' edges between a row and the row above; empty if there are
    /// none.
    std::string edge_line(int row) const {
        bool any = false;
        std::string line(static_cast<std::size_t>(head_columns_), ' ');
        for (int column = 0; column <= layout_.columns(); ++column) {
            const bool right = column < layout_.columns() && has_edge_above(row, column);
            if (has_upright_edge(column))
                line += corner_of(has_edge_left(row - 1, column), right,
                                  has_edge_left(row, column),
                                  column > 0 && has_edge_above(row, column - 1));
            any = any || right;
            if (column == layout_.columns()) break;
            for (int i = 0; i < cell_; ++i)
                line += right ? "─" : " ";
        }
        return any ? without_end(line) : "";
    }

    std::string row_lines(int row) {
        std::string text;
        for (int i = 0; i < lines_; ++i) {
            std::string line = head_text(i == 0 ? row_head(row) : "");
            for (int column = 0; column <= layout_.columns(); ++column) {
                if (has_upright_edge(column))
                    line += has_edge_left(row, column) ? "│" : " ";
                if (column < layout_.columns())
                    line += device_text(layout_.rank_at(row, column), i);
            }
            if (i == 0) line += " " + nodes_beginning(row);
            text += without_end(line);
        }
        const bool parted =
            labels_ && row + 1 < layout_.rows() && edge_line(row + 1).empty();
        return text + (parted ? blank_line(row) : "");
    }

    /// Returns the line between two rows with labels.
    std::string blank_line(int row) const {
        std::string line(static_cast<std::size_t>(head_columns_), ' ');
        for (int column = 0; column <= layout_.columns(); ++column) {
            if (has_upright_edge(column)) line += has_edge_left(row, column) ? "│" : " ";
            if (column < layout_.columns())
                line += std::string(static_cast<std::size_t>(cell_), ' ');
        }
        return without_end(line);
    }

    std::string head_text(const std::string& text) const {
        return pad_right(clipped(text, std::max(head_columns_ - 1, 1)), head_columns_);
    }

    /// Returns the places that differ from the previous row that is drawn.
    std::string row_head(int row) {
        const std::vector<std::string> axes = layout_.row_axes();
        const std::vector<std::string> places = layout_.row_places(row);
        shown_.resize(axes.size());
        std::string text;
        bool changed = false;
        for (std::size_t i = 0; i < axes.size(); ++i) {
            changed = changed || places[i] != shown_[i];
            text += pad_right(changed ? axes[i] + " " + places[i] : "", heads_[i]);
        }
        shown_ = places;
        text.erase(text.find_last_not_of(' ') + 1);
        return text;
    }

    /// Returns line `line` of a device.
    std::string device_text(int rank, int line) {
        if (rank < 0) return std::string(static_cast<std::size_t>(cell_), ' ');
        std::string text = line == 0 ? std::to_string(rank) : "";
        if (line > 0) {
            const std::vector<std::string> labels = picture_.labels_of(rank);
            const auto index = static_cast<std::size_t>(line) - 1;
            if (index < labels.size()) text = labels[index];
        }
        std::string cell = cell_text(text, "");
        if (line == 0 && rank == picture_.marked) {
            cell = labels_ ? pad_right("[" + text + "]", cell_)
                           : pad_left("[" + text, cell_ - 1) + "]";
        }
        if (!style_.colour || picture_.coloured.empty()) return cell;
        return on_colour(cell, colour_of_place(picture_.colour_place(rank)));
    }

    /// Names the nodes whose first device is in this row.
    std::string nodes_beginning(int row) const {
        if (!has_frames()) return "";
        int first = -1, last = -1;
        for (int column = 0; column < layout_.columns(); ++column) {
            const int rank = layout_.rank_at(row, column);
            if (rank < 0 || rank % picture_.per_node != 0) continue;
            if (first < 0) first = picture_.node_of(rank);
            last = picture_.node_of(rank);
        }
        return first < 0 ? "" : nodes_text(first, last);
    }

    std::string legend() const {
        if (!style_.colour || picture_.coloured.empty()) return "";
        const int size = picture_.shape.size(picture_.coloured);
        constexpr int kMost = 8;
        std::string text = "\n";
        for (int place = 0; place < std::min(size, kMost); ++place)
            text += on_colour(fmt::format(" {} {} ", picture_.coloured, place),
                              colour_of_place(place)) +
                    " ";
        return without_end(text + (size > kMost ? "…" : ""));
    }

    const MeshPicture& picture_;
    const TextStyle& style_;
    int width_;
    bool labels_;
    MeshLayout layout_;
    int cell_ = 1;   ///< columns of the text
    int lines_ = 1;  ///< of a device
    std::vector<int> heads_;
    int head_columns_ = 0;
    std::vector<std::string> shown_;  ///< places of the row above
};

}  // namespace

std::string mesh_text(const MeshPicture& picture, const TextStyle& style) {
    return MeshText(picture, style).text();
}

}  // namespace lockstep
