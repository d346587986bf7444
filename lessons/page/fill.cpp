#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lessons/page/lesson_page.hpp"
#include "lessons/page/prediction.hpp"
#include "lessons/page/quote.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"

namespace lockstep::lessons {

namespace {

/// Returns the message about a check that failed.
std::string failure_text(const MadeCheck& made, Language language) {
    Figure bound = made.unit;
    bound.value = made.check.bound;
    Figure figure = made.unit;
    figure.value = made.check.figure;
    const std::string sentence =
        said(language,
             made.check.equality ? "{} instead of {}" : "{}, but at most {} is allowed");
    return made.check.name + ": " +
           fmt::format(fmt::runtime(sentence), text_of(figure, language),
                       text_of(bound, language));
}

/// Returns the same drawing, with its words in Chinese.
std::shared_ptr<const Draw> drawn_in_chinese(const std::shared_ptr<const Draw>& draw) {
    return std::make_shared<const Draw>([draw](const std::string& title) {
        Drawing drawing = (*draw)(title);
        std::visit([](auto& drawn) { drawn.translate = in_chinese; }, drawing);
        return drawing;
    });
}

/// Goes through the blocks of a section and makes the blocks that are shown.
class Filler {
  public:
    Filler(const LessonPage& page, const Findings& found, Language language,
           Solutions solutions)
        : page_(page), found_(found), language_(language), solutions_(solutions) {}

    Document fill(const Document& section) {
        Document shown;
        const std::size_t end = fill_until_end(section, 0, shown);
        if (end < section.size())
            fail(section[end], "{{{{{}}}}} ends nothing",
                 directive_of(section[end])->word);
        if (!folded_.empty())
            shown.push_back({FoldedChecks{folded_summary(), folded_}, 0});
        return shown;
    }

  private:
    using Ends = std::set<std::string>;

    std::string folded_summary() const {
        if (folded_.size() == 1) return said(language_, "One more check passed.");
        const std::string sentence = said(language_, "{} more checks passed.");
        return fmt::format(fmt::runtime(sentence), folded_.size());
    }

    template <typename... Arguments>
    [[noreturn]] void fail(const Block& block, fmt::format_string<Arguments...> sentence,
                           Arguments&&... arguments) const {
        throw UsageError(page_.place(block.line) + ": " +
                         fmt::format(sentence, std::forward<Arguments>(arguments)...));
    }

    std::string fill_text(const std::string& text, const Findings& found,
                          int line) const {
        return filled(text, found, page_, page_.place(line));
    }

    Words fill_words(const Words& words, const Findings& found, int line) const {
        Words all;
        for (Span span : words) {
            span.text = fill_text(span.text, found, line);
            append(all, span);
        }
        return all;
    }

    /// Fills blocks from `at` on, up to a directive for which is_end() is true, and
    /// returns the index of this directive.
    std::size_t fill_until_end(const Document& blocks, std::size_t at, Document& shown) {
        while (at < blocks.size()) {
            const Block& block = blocks[at];
            const std::optional<Directive> directive = directive_of(block);
            if (directive) require_apart(block, *directive);
            if (!directive) {
                shown.push_back(fill_block(block));
                ++at;
            } else if (is_end(directive->word)) {
                return at;
            } else if (directive->word == "if") {
                at = fill_if(blocks, at, *directive, shown);
            } else if (directive->word == "predict") {
                at = fill_prediction(blocks, at, *directive, shown);
            } else {
                fill_directive(block, *directive, shown);
                ++at;
            }
        }
        return at;
    }

    static bool is_end(const std::string& word) {
        static const Ends kEnds{"else", "end", "option", "hint", "answer"};
        return kEnds.contains(word);
    }

    /// Skips blocks up to a directive of `ends` that does not belong to an inner
    /// directive, without filling the blocks.
    std::size_t skip_until(const Document& blocks, std::size_t at, const Ends& ends) {
        for (int depth = 0; at < blocks.size(); ++at) {
            const std::optional<Directive> directive = directive_of(blocks[at]);
            if (!directive) continue;
            if (depth == 0 && ends.contains(directive->word)) return at;
            if (directive->word == "if" || directive->word == "predict") ++depth;
            if (directive->word == "end") --depth;
        }
        return at;
    }

    std::string word_at(const Document& blocks, std::size_t at, const Block& opened) {
        if (at >= blocks.size())
            fail(opened, "what begins here is not ended by {{{{end}}}}");
        return directive_of(blocks[at])->word;
    }

    bool holds(const Block& block, std::string name) const {
        constexpr std::string_view kNot = "not ";
        const bool negated = name.starts_with(kNot);
        if (negated) name.erase(0, kNot.size());
        const Value* value = found_.value(name);
        const bool* flag = value ? std::get_if<bool>(value) : nullptr;
        if (!flag)
            fail(block, "nothing was given as true or false under the name {}", name);
        return *flag != negated;
    }

    std::size_t fill_if(const Document& blocks, std::size_t at,
                        const Directive& directive, Document& shown) {
        const Block& opened = blocks[at];
        const Ends ends{"else", "end"};
        const bool first = holds(opened, directive.name);
        at = first ? fill_until_end(blocks, at + 1, shown)
                   : skip_until(blocks, at + 1, ends);
        if (word_at(blocks, at, opened) == "else")
            at = first ? skip_until(blocks, at + 1, {"end"})
                       : fill_until_end(blocks, at + 1, shown);
        if (word_at(blocks, at, opened) != "end")
            fail(blocks[at], "{{{{{}}}}} stands where {{{{end}}}} is expected",
                 word_at(blocks, at, opened));
        return at + 1;
    }

    std::size_t fill_prediction(const Document& blocks, std::size_t at,
                                const Directive& directive, Document& shown) {
        const Block& opened = blocks[at];
        const auto prediction = std::make_shared<Prediction>();
        prediction->name = directive.name;
        set_answer(opened, *prediction);
        if (!directive.rest.empty())
            prediction->question.push_back(
                {Paragraph{fill_words(directive.rest, found_, opened.line)},
                 opened.line});
        const Ends ends{"option", "hint", "answer", "end"};
        at = fill_until_end(blocks, at + 1, prediction->question);
        while (word_at(blocks, at, opened) != "end") {
            const Block& block = blocks[at];
            const Directive part = *directive_of(block);
            Document text;
            if (!part.rest.empty())
                text.push_back(
                    {Paragraph{fill_words(part.rest, found_, block.line)}, block.line});
            if (!ends.contains(part.word))
                fail(block, "{{{{{}}}}} cannot stand in a prediction", part.word);
            at = fill_until_end(blocks, at + 1, text);
            if (part.word == "option")
                prediction->choices.push_back({part.name, std::move(text)});
            else if (part.word == "hint")
                prediction->hints.push_back(hint_of(part, text, prediction->answer));
            else
                prediction->working = std::move(text);
        }
        require_choice(opened, *prediction);
        require_hints(opened, *prediction);
        shown.push_back({Question{prediction}, opened.line});
        return at + 1;
    }

    /// Sets the answer of a question: the experiment's value under the question's name.
    void set_answer(const Block& block, Prediction& prediction) const {
        const Value* value = found_.value(prediction.name);
        if (value && std::holds_alternative<Figure>(*value))
            prediction.answer = std::get<Figure>(*value);
        else if (value && std::holds_alternative<std::string>(*value))
            prediction.right_choice = std::get<std::string>(*value);
        else
            fail(block, "no value has the name {}, which the question asks for",
                 prediction.name);
    }

    void require_choice(const Block& block, const Prediction& prediction) const {
        if (!prediction.has_choices()) {
            if (!prediction.right_choice.empty())
                fail(block, "{} is '{}', but the question has no {{{{option}}}}",
                     prediction.name, prediction.right_choice);
            return;
        }
        if (std::ranges::find(prediction.choices, prediction.right_choice,
                              &Choice::key) == prediction.choices.end())
            fail(block, "{} is '{}', which is no {{{{option}}}} of the question",
                 prediction.name, prediction.right_choice);
    }

    /// Requires that each hint names an option or, if there are no options, a number.
    void require_hints(const Block& block, const Prediction& prediction) const {
        for (const Hint& hint : prediction.hints) {
            const bool is_option =
                std::ranges::find(prediction.choices, hint.choice, &Choice::key) !=
                prediction.choices.end();
            if (prediction.has_choices() ? !is_option : !hint.choice.empty())
                fail(block, "{{{{hint {}}}}} is for no wrong answer of the question {}",
                     hint.choice, prediction.name);
        }
    }

    /// Returns a hint for a wrong answer: `{{hint 1/2}}` is for half of the right answer,
    /// `{{hint NAME}}` for the value or the option with that name.
    Hint hint_of(const Directive& part, const Document& text,
                 const Figure& answer) const {
        Hint hint;
        for (const Block& line : text)
            if (const auto* paragraph = line.as<Paragraph>())
                for (const Span& span : paragraph->text)
                    append(hint.text, span);
        const std::size_t stroke = part.name.find('/');
        const std::optional<double> numerator = parse_number(part.name.substr(0, stroke));
        const std::optional<double> denominator =
            stroke == std::string::npos ? std::optional(1.)
                                        : parse_number(part.name.substr(stroke + 1));
        if (numerator && denominator && *denominator != 0) {
            hint.wrong = answer.value * *numerator / *denominator;
            return hint;
        }
        const Value* value = found_.value(part.name);
        if (value && std::holds_alternative<Figure>(*value))
            hint.wrong = std::get<Figure>(*value).value;
        else
            hint.choice = part.name;
        return hint;
    }

    /// Requires that a directive is not followed by another in the same paragraph.
    void require_apart(const Block& block, const Directive& directive) const {
        if (plain(directive.rest).find("{{") != std::string::npos)
            fail(block, "behind {{{{{}}}}} a blank line is missing", directive.word);
    }

    void fill_directive(const Block& block, const Directive& directive, Document& shown) {
        const auto give = [&](auto kind) {
            shown.push_back({std::move(kind), block.line});
        };
        if (directive.word == "check") {
            fill_check(block, directive, shown);
        } else if (directive.word == "code") {
            give(quoted(block, directive.name));
        } else if (directive.word == "solution") {
            for (Block& each : solution(block, directive))
                shown.push_back(std::move(each));
        } else if (directive.word == "output") {
            give(Listing{"", fill_text("{" + directive.name + "}", found_, block.line),
                         ""});
        } else if (directive.word == "picture") {
            const Picture* picture = found_.picture(directive.name);
            if (!picture) fail(block, "no picture was given the name {}", directive.name);
            give(Picture{language_ == Language::chinese ? drawn_in_chinese(picture->draw)
                                                        : picture->draw,
                         fill_text(directive.label, found_, block.line)});
        } else if (directive.word != "title" && directive.word != "word") {
            fail(block,
                 "{{{{{}}}}} is no directive; there are check, code, solution, output, "
                 "picture, predict, if, title and word",
                 directive.word);
        }
    }

    Listing quoted(const Block& block, const std::string& name) const {
        const auto quote = std::ranges::find(quotes(), name, &Quote::name);
        if (quote == quotes().end())
            fail(block, "no code in the project is marked `// lesson: {}`", name);
        return {"cpp", std::string(quote->code),
                fmt::format("{}:{}", quote->file, quote->line)};
    }

    /// Returns code that an assignment asks students to write, after a text about it. If
    /// solutions are hidden, returns only a sentence that names the assignment.
    Document solution(const Block& block, const Directive& directive) const {
        Document code;
        if (!directive.rest.empty())
            code.push_back(
                {Paragraph{fill_words(directive.rest, found_, block.line)}, block.line});
        for (const std::string& name : split_at_commas(directive.label))
            code.push_back({quoted(block, std::string(trimmed(name))), block.line});
        if (solutions_ == Solutions::shown) return code;
        const std::string sentence =
            said(language_,
                 "(The assignment {} asks you to write this code. Once you have, run "
                 "this lesson with --show code to see the course's version.)");
        return {{Paragraph{words_of(fmt::format(fmt::runtime(sentence), directive.name))},
                 block.line}};
    }

    void fill_check(const Block& block, const Directive& directive, Document& shown) {
        // "list.name" is a check that each row has; the sentence is about all rows.
        const std::size_t dot = directive.name.rfind('.');
        const auto* rows = dot == std::string::npos
                               ? nullptr
                               : found_.list(directive.name.substr(0, dot));
        if (!rows) return fill_check_of(found_, directive.name, block, directive, shown);
        const std::string name = directive.name.substr(dot + 1);
        const auto all_true = [&name](const auto& row) {
            const MadeCheck* made = row->check(name);
            return made && made->compared && made->check.passed;
        };
        if (!directive.rest.empty() && std::ranges::all_of(*rows, all_true)) {
            shown.push_back(
                {Verdict{true, fill_words(directive.rest, found_, block.line)},
                 block.line});
            return;
        }
        for (const auto& row : *rows)
            if (row->check(name)) fill_check_of(*row, name, block, directive, shown);
    }

    /// Shows, once per step, the sentence for a run that computes only shapes.
    void say_not_compared(const Block& block, Document& shown) {
        if (std::exchange(said_not_compared_, true)) return;
        shown.push_back(
            {Paragraph{words_of(said(
                 language_, "(Not compared, because this run computes only shapes.)"))},
             block.line});
    }

    void fill_check_of(const Findings& found, const std::string& name, const Block& block,
                       const Directive& directive, Document& shown) {
        const MadeCheck* made = found.check(name);
        if (!made) fail(block, "nothing was checked under the name {}", directive.name);
        const auto say = [&](bool passed, Words words) {
            shown.push_back({Verdict{passed, std::move(words)}, block.line});
        };
        if (!made->compared)
            say_not_compared(block, shown);
        else if (!made->check.passed)
            say(false, words_of(failure_text(*made, language_)));
        else if (directive.rest.empty())
            folded_.push_back(words_of(made->check.name));
        else
            say(true, fill_words(directive.rest, found, block.line));
    }

    Block fill_block(const Block& block) {
        if (const auto* paragraph = block.as<Paragraph>())
            return {Paragraph{fill_words(paragraph->text, found_, block.line)},
                    block.line};
        if (const auto* heading = block.as<Heading>())
            return {
                Heading{heading->level, fill_words(heading->title, found_, block.line)},
                block.line};
        if (const auto* listing = block.as<Listing>())
            return {Listing{listing->language,
                            fill_text(listing->text, found_, block.line), ""},
                    block.line};
        if (const auto* table = block.as<TableBlock>())
            return {fill_table(*table, block.line), block.line};
        if (const auto* list = block.as<List>()) {
            List filled_list{list->numbered, list->first, {}};
            for (const Document& item : list->items)
                filled_list.items.push_back(fill_all(item));
            return {std::move(filled_list), block.line};
        }
        if (const auto* quotation = block.as<Quotation>())
            return {Quotation{fill_all(quotation->blocks)}, block.line};
        return block;
    }

    Document fill_all(const Document& blocks) {
        Document all;
        for (const Block& block : blocks)
            all.push_back(fill_block(block));
        return all;
    }

    TableBlock fill_table(const TableBlock& table, int line) {
        constexpr std::string_view kEach = "{{each ";
        TableBlock shown;
        for (const std::vector<Words>& row : table.rows) {
            const std::string first = row.empty() ? "" : plain(row.front());
            if (!first.starts_with(kEach)) {
                shown.rows.push_back(fill_row(row, found_, line));
                continue;
            }
            const std::size_t end = std::min(first.find("}}"), first.size());
            const std::string name = first.substr(kEach.size(), end - kEach.size());
            const auto* list = found_.list(name);
            require(list, "{}: no rows were given the name {}", page_.place(line), name);
            std::vector<Words> pattern = row;
            const std::string rest(
                trimmed(first.substr(std::min(end + 2, first.size()))));
            pattern.front() = words_of(rest);
            for (const auto& each : *list)
                shown.rows.push_back(fill_row(pattern, *each, line));
        }
        for (std::size_t column = 0; column < table.head.size(); ++column)
            shown.head.push_back(is_left_out(table, shown, column)
                                     ? Words{}
                                     : fill_words(table.head[column], found_, line));
        drop_left_out(table, shown);
        return shown;
    }

    std::vector<Words> fill_row(const std::vector<Words>& row, const Findings& found,
                                int line) const {
        std::vector<Words> cells;
        cells.reserve(row.size());
        for (const Words& cell : row)
            cells.push_back(fill_words(cell, found, line));
        return cells;
    }

    /// Returns whether a column has optional values, and all of its values are missing.
    static bool is_left_out(const TableBlock& table, const TableBlock& shown,
                            std::size_t column) {
        const bool optional = std::ranges::any_of(table.rows, [&](const auto& row) {
            return plain(row[column]).find("?}") != std::string::npos;
        });
        return optional && std::ranges::all_of(shown.rows, [&](const auto& row) {
                   return plain(row[column]).empty();
               });
    }

    static void drop_left_out(const TableBlock& table, TableBlock& shown) {
        for (std::size_t column = table.head.size(); column-- > 0;) {
            if (!is_left_out(table, shown, column)) continue;
            const auto at = static_cast<std::ptrdiff_t>(column);
            shown.head.erase(shown.head.begin() + at);
            for (auto& row : shown.rows)
                row.erase(row.begin() + at);
        }
    }

    const LessonPage& page_;
    const Findings& found_;
    Language language_;
    Solutions solutions_;
    std::vector<Words> folded_;
    bool said_not_compared_ = false;
};

}  // namespace

Document filled(const LessonPage& page, const Document& section, const Findings& found,
                Language language, Solutions solutions) {
    return Filler(page, found, language, solutions).fill(section);
}

}  // namespace lockstep::lessons
