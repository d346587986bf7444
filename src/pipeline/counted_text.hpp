#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

namespace lockstep {

/// What the file is read through: it knows how far it has been read, and so
/// on which line.
class CountedText {
  public:
    explicit CountedText(std::string_view text) : text_(text) {}

    class Iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = char;
        using difference_type = std::ptrdiff_t;
        using pointer = const char*;
        using reference = const char&;

        Iterator(CountedText& counted, std::size_t at)
            : counted_(&counted), at_(at) {}
        reference operator*() const { return counted_->text_[at_]; }
        Iterator& operator++() {
            counted_->read_ = ++at_;
            return *this;
        }
        Iterator operator++(int) {
            const Iterator before = *this;
            ++*this;
            return before;
        }
        bool operator==(const Iterator& other) const {
            return at_ == other.at_;
        }
        bool operator!=(const Iterator& other) const {
            return at_ != other.at_;
        }

      private:
        CountedText* counted_;
        std::size_t at_;
    };
    Iterator begin() { return {*this, 0}; }
    Iterator end() { return {*this, text_.size()}; }

    /// Of the last byte read but `back`.
    int line(std::size_t back = 0) {
        const std::size_t until = std::max(read_, back) - back;
        for (; counted_ < until; ++counted_)
            if (text_[counted_] == '\n') ++line_;
        return line_;
    }
    /// Of the byte with this number, from 1; both count from 1.
    std::pair<int, std::size_t> line_and_column(std::size_t byte) const {
        const std::string_view before = text_.substr(
            0, std::clamp<std::size_t>(byte, 1, text_.size()) - 1);
        const std::size_t begin = before.rfind('\n') + 1;
        return {1 + static_cast<int>(std::ranges::count(before, '\n')),
                before.size() - begin + 1};
    }

  private:
    std::string_view text_;
    std::size_t read_ = 0;
    std::size_t counted_ = 0;
    int line_ = 1;
};

}  // namespace lockstep
