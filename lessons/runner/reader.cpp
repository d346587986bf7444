#include "lessons/runner/reader.hpp"

#include <algorithm>
#include <limits>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "lessons/runner/terminal.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines)
        text += line + "\n";
    return text;
}

std::string whole_text(const Document& blocks, const TextLook& look) {
    return joined(lines_of(blocks, look)) + "\n";
}

}  // namespace

Document outcome_of(const Prediction& prediction, const Answer& answer,
                    Language language) {
    using Outcome = Answer::Outcome;
    Document blocks;
    const auto say = [&](const char* label, std::string text, Labelled::Look look) {
        blocks.push_back(
            {Labelled{said(language, label), words_of(std::move(text)), look}});
    };
    if (!answer.typed.empty())
        say("Your answer:", answer.typed.back(), Labelled::Look::strong);
    const bool right =
        answer.outcome == Outcome::right || answer.outcome == Outcome::right_later;
    say(right                              ? "Right:"
        : answer.outcome == Outcome::wrong ? "No, it is:"
                                           : "Answer:",
        answer_text(prediction, language),
        right ? Labelled::Look::good : Labelled::Look::strong);
    blocks.insert(blocks.end(), prediction.working.begin(), prediction.working.end());
    return blocks;
}

TextLook Reader::window_look() const {
    TextLook look = look_;
    look.width = window_columns(STDOUT_FILENO);
    return look;
}

std::size_t Reader::rows() const {
    return static_cast<std::size_t>(window_rows(STDOUT_FILENO));
}

void Reader::run_to(std::size_t step) {
    while (pages_.size() <= step)
        pages_.push_back(steps_[pages_.size()].run());
}

Document& Reader::page(std::size_t step) {
    if (pages_.size() > step) return pages_[step];
    if (waits_) print(said(look_.language, "Computing …"));
    run_to(step);
    if (waits_) print("\r\x1b[K");
    Document page;
    if (step == first_) page = opening_;
    if (!steps_[step].title.empty()) {
        const auto numbered = std::ranges::count_if(
            steps_, [](const Step& each) { return !each.title.empty(); });
        page.push_back({Heading{
            2,
            words_of(fmt::format(fmt::runtime(said(look_.language, "Step {} of {}: {}")),
                                 step + 1, numbered, steps_[step].title))}});
    }
    page.insert(page.end(), pages_[step].begin(), pages_[step].end());
    pages_[step] = std::move(page);
    settle_known(step);
    return pages_[step];
}

bool Reader::is_open(const Block& block) const {
    const auto* question = block.as<Question>();
    return question && !settled_.contains(question->prediction->name);
}

void Reader::settle(std::size_t step, std::size_t block, const Answer& answer) {
    Document& blocks = pages_[step];
    const Prediction& prediction = *blocks[block].as<Question>()->prediction;
    settled_.insert(prediction.name);
    const Document outcome = outcome_of(prediction, answer, look_.language);
    blocks.insert(blocks.begin() + static_cast<std::ptrdiff_t>(block) + 1,
                  outcome.begin(), outcome.end());
}

void Reader::settle_known(std::size_t step) {
    for (std::size_t block = 0; block < pages_[step].size(); ++block) {
        if (!is_open(pages_[step][block])) continue;
        const Answer* known =
            notebook_.answer(pages_[step][block].as<Question>()->prediction->name);
        if (known || !waits_) settle(step, block, known ? *known : Answer{});
    }
}

Reader::Screen Reader::show_screen(Position from, std::size_t most_lines) {
    const TextLook look = window_look();
    const Document& blocks = page(from.step);
    std::vector<std::string> screen;
    Screen shown{from};
    Position& at = shown.next;
    while (at.block < blocks.size() && !shown.asks) {
        const Block& block = blocks[at.block];
        const std::vector<std::string> lines = lines_of(block, look);
        const std::size_t begin = std::min(at.line, lines.size());
        const std::size_t left = lines.size() - begin;
        const bool gap = !screen.empty() && stand_apart(blocks[at.block - 1], block);
        const std::size_t room = most_lines - screen.size();
        if (left + (gap ? 1 : 0) > room) {
            // Only a block that is larger than a screen is cut.
            if (!screen.empty()) break;
            const auto first = lines.begin() + static_cast<std::ptrdiff_t>(begin);
            screen.assign(first, first + static_cast<std::ptrdiff_t>(room));
            at.line = begin + room;
            break;
        }
        if (gap) screen.emplace_back();
        screen.insert(screen.end(), lines.begin() + static_cast<std::ptrdiff_t>(begin),
                      lines.end());
        shown.asks = is_open(block);
        at = {at.step, at.block + 1, 0};
    }
    print(joined(screen));
    return shown;
}

std::string Reader::prompt(Position next) const {
    const auto say = [&](const char* key, const char* meaning) {
        return fmt::format("  [{}] {}", key, said(look_.language, meaning));
    };
    const bool step_ends = next.block >= pages_[next.step].size();
    const bool lesson_ends = step_ends && next.step + 1 == end_;
    // After the last step comes the lesson's end, which is not a step.
    const bool step_follows =
        step_ends && !lesson_ends && !steps_[next.step + 1].title.empty();
    const std::string first =
        fmt::format("[Enter] {}", said(look_.language, lesson_ends    ? "end"
                                                       : step_follows ? "next step"
                                                                      : "more"));
    // In a narrow window, show only keys that fit; the most important keys are first.
    const std::vector<std::string> others{say("q", "quit"), say("?", "help"),
                                          say("b", "back"),
                                          step_ends ? "" : say("n", "next step")};
    const int room = window_columns(STDOUT_FILENO) - 1;
    std::string text = first;
    for (const std::string& other : others)
        if (columns_of(text) + columns_of(other) <= room) text += other;
    return text;
}

void Reader::tell(const std::string& sentence) const {
    print(joined(lines_of(Block{Paragraph{words_of(sentence)}}, window_look())));
}

std::string Reader::help() const {
    const auto line = [&](const char* key, const char* meaning) {
        return fmt::format("  {}{}\n", pad_right(key, 8), said(look_.language, meaning));
    };
    return line("Enter", "more") + line("b", "back") + line("n", "next step") +
           line("s", "the rest of this step") + line("q", "quit");
}

namespace {

std::string question_prompt(const Prediction& prediction, Language language, bool again) {
    const std::string unit = unit_asked_for(prediction.answer, language);
    std::string text = said(language, again ? "Once more" : "Your answer");
    if (prediction.has_choices())
        text += said(language, ", a letter from the list");
    else if (!unit.empty())
        text += fmt::format(fmt::runtime(said(language, ", in {}")), unit);
    return text + " (" + said(language, "Enter skips") + "): ";
}

constexpr const char* kKeysAtQuestions =
    "Type q, b, n or s to use these keys here; n and s skip the question.";

/// Returns the text that says how to type an answer.
std::string expected(const Prediction& prediction, Language language) {
    if (!prediction.has_choices())
        return said(language,
                    "Type a number such as 1,500, 1.5e3, 1/4, 25% or 150 KiB. Answers "
                    "within 1 % count as right.");
    return fmt::format(fmt::runtime(said(language, "Type a letter from a to {}.")),
                       letter_of(prediction.choices.size() - 1));
}

/// Returns the advice on an answer that is not right.
std::string advice(const Prediction& prediction, const Judgement& judgement,
                   const TextLook& look) {
    const Language language = look.language;
    if (judgement.outcome == Judgement::Outcome::unreadable)
        return joined(
            lines_of(Block{Paragraph{words_of(expected(prediction, language))}}, look));
    Words words = words_of(said(language, "Not yet.") + " ");
    if (judgement.hint)
        for (const Span& span : judgement.hint->text)
            append(words, span);
    else if (judgement.remark)
        append(words, words_of(said(language, judgement.remark)).front());
    return joined(lines_of(Block{Paragraph{words}}, look));
}

/// Returns the key that was typed instead of an answer, if any.
std::optional<Key> key_typed(const std::string& typed, const Judgement& judgement) {
    if (judgement.outcome != Judgement::Outcome::unreadable || typed.size() != 1)
        return std::nullopt;
    const std::optional<Key> key = key_called(typed.front());
    return key == Key::next ? std::nullopt : key;
}

/// Adds the attempt to the answer, unless it is unreadable. Returns whether it is right.
bool note_try(Answer& answer, const std::string& typed, Judgement::Outcome outcome) {
    if (outcome == Judgement::Outcome::unreadable) return false;
    answer.typed.push_back(typed);
    const bool right = outcome == Judgement::Outcome::right;
    answer.outcome = !right                     ? Answer::Outcome::wrong
                     : answer.typed.size() == 1 ? Answer::Outcome::right
                                                : Answer::Outcome::right_later;
    return right;
}

}  // namespace

std::optional<Key> Reader::ask(Position question) {
    constexpr int kTries = 2;
    const Prediction& prediction =
        *pages_[question.step][question.block].as<Question>()->prediction;
    Answer answer;
    answer.figure = answer_text(prediction);
    bool is_sure = false;  // Enter is a habit, so pressing it once does not skip
    std::optional<Key> wish;
    while (answer.typed.size() < kTries) {
        const std::optional<std::string> line =
            ask_line(question_prompt(prediction, look_.language, !answer.typed.empty()));
        if (!line) return Key::quit;
        const std::string typed(trimmed(*line));
        if (typed.empty()) {
            if (std::exchange(is_sure, true)) break;
            tell(said(look_.language,
                      "Press Enter again to skip. The answer is then shown and the "
                      "question is closed."));
            continue;
        }
        const Judgement judgement = judge(prediction, typed);
        const std::optional<Key> key = key_typed(typed, judgement);
        if (key == Key::help) {
            tell(expected(prediction, look_.language));
            tell(said(look_.language, kKeysAtQuestions));
            continue;
        }
        if (key == Key::step || key == Key::all) {
            wish = key;
            break;
        }
        if (key) return key;
        if (note_try(answer, typed, judgement.outcome)) break;
        if (answer.typed.size() < kTries)
            print(advice(prediction, judgement, window_look()));
    }
    notebook_.put(prediction.name, answer);
    settle(question.step, question.block, answer);
    return wish;
}

Key Reader::key_behind(const Screen& screen) {
    const bool step_ends = screen.next.block >= pages_[screen.next.step].size();
    if (step_ends) print("\n");
    Key key = Key::help;
    while (key == Key::help) {
        key = wait_for_key(prompt(screen.next));
        if (key == Key::help) print(help());
    }
    return key;
}

std::optional<std::size_t> Reader::run(Document opening, std::size_t first,
                                       std::size_t end) {
    opening_ = std::move(opening);
    first_ = first;
    end_ = std::min(steps_.size(), end);
    if (waits_) return lead_through();
    for (std::size_t step = first; step < end_; ++step)
        print(whole_text(page(step), window_look()));
    return std::nullopt;
}

std::optional<std::size_t> Reader::lead_through() {
    constexpr std::size_t kAll = std::numeric_limits<int>::max();
    constexpr std::size_t kPrompt = 2;  // the prompt, and the blank line before it
    Position from{first_};
    bool shows_all = false;
    while (from.step < end_) {
        page(from.step);
        // If a learner views only one step, the place in the lesson does not change.
        const bool is_lesson = end_ == steps_.size();
        if (is_lesson && !steps_[from.step].title.empty()) notebook_.reach(from.step);
        const Screen screen = show_screen(from, shows_all ? kAll : rows() - kPrompt);
        const std::optional<Key> key =
            screen.asks ? ask({from.step, screen.next.block - 1}) : key_behind(screen);
        if (key == Key::quit) return from.step;
        shows_all = key == Key::all;
        if (key == Key::resized || key == Key::back) print("\x1b[H\x1b[2J");
        from = place_after(key, from, screen);
    }
    return std::nullopt;
}

Reader::Position Reader::place_after(std::optional<Key> key, Position from,
                                     const Screen& screen) {
    if (key == Key::resized || key == Key::help) return from;
    if (key == Key::back) {
        if (before_.empty()) return from;
        const Position last = before_.back();
        before_.pop_back();
        return last;
    }
    before_.push_back(from);
    const bool step_ends = screen.next.block >= pages_[from.step].size();
    const bool goes_on = key != Key::step && (screen.asks || !step_ends);
    return goes_on ? screen.next : Position{from.step + 1};
}

void print_document(const Document& page) {
    print(joined(
        lines_of(page, {window_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO)})));
}

void print_found(Document page, const std::optional<std::filesystem::path>& picture) {
    if (picture)
        page.push_back({Paragraph{words_of(
            fmt::format("The picture is in {}.", printable(picture->string())))}});
    print_document(page);
    print("\n");
}

}  // namespace lockstep::lessons
