#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/runner/page.hpp"

namespace lockstep::lessons {

/// How a page looks.
struct PageStyle {
    int width = 80;  ///< columns
    bool colour = false;
    /// A passed check shows its figure, even if that is rounding, which differs from
    /// machine to machine. A transcript shows the bound alone; metrics.json has the
    /// figure.
    bool rounding = false;
};

/// Takes a page's text, piece by piece.
using TextSink = std::function<void(std::string_view)>;

/// Asks the learner: shows the prompt and returns the line typed, or none where none will
/// come.
using Ask = std::function<std::optional<std::string>(const std::string& prompt)>;

/// A page as text, on a terminal and in a pipe. No line is longer than the style's width.
class TextPage : public Page {
  public:
    /// Without `ask`, predictions are answered at once.
    TextPage(PageStyle style, Record& record, TextSink sink, Ask ask = nullptr);

    void heading(const std::string& title);
    void text(const std::string& paragraph) override;
    void verbatim(const std::string& lines) override;
    void table(const Table& table) override;
    void quote(const std::string& anchor) override;
    void chart(const Chart& chart) override;
    void predict(const std::string& question, double answer, const std::string& unit,
                 const std::string& working) override;
    void check(const Check& check) override;
    std::unique_ptr<Progress> progress(const std::string& what,
                                       std::int64_t total) override;

    /// Ends the page with a blank line, whatever it shows last.
    void end();

    /// All that was shown, to show it again.
    const std::string& shown() const { return shown_; }

  private:
    enum class Look { plain, strong, faint, good, bad };

    void show(const std::string& text);
    void show_lines(const std::vector<std::string>& lines, Look look = Look::plain);
    /// A paragraph behind a word that stands out.
    void show_labelled(const std::string& label, const std::string& text, Look look);
    std::string dressed(const std::string& text, Look look) const;
    int text_width() const;
    std::optional<double> ask_number(const std::string& unit);

    PageStyle style_;
    Record& record_;
    TextSink sink_;
    Ask ask_;
    std::string shown_;
    bool in_checks_ = false;  ///< the last thing shown was a check
};

/// "3e-17, at most 1e-13", or what else there is to say of a check's figure.
std::string verdict_text(const Check& check, bool rounding);

}  // namespace lockstep::lessons
