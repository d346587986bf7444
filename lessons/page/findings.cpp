#include "lessons/page/findings.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/report/timeline.hpp"

namespace lockstep::lessons {

void Findings::put(Given given, const std::string& at) {
    given_at_[given.name] = at;
    if (!values_.emplace(given.name, std::move(given.value)).second)
        throw std::logic_error(at + " gives " + prefix_ + given.name + " again");
}

void Findings::give(std::initializer_list<Given> values, SourceLine at) {
    int place = 0;
    for (const Given& given : values)
        put(given, fmt::format("{}, value {}", at.text(), ++place));
}

void Findings::give(const std::string& prefix, std::initializer_list<Given> values,
                    SourceLine at) {
    int place = 0;
    for (const Given& given : values)
        put({prefix + "." + given.name, given.value},
            fmt::format("{}, value {}", at.text(), ++place));
}

Findings& Findings::row(const std::string& list, std::initializer_list<Given> values,
                        SourceLine at) {
    given_at_[list] = at.text();
    auto& rows = lists_[list];
    rows.push_back(std::unique_ptr<Findings>(new Findings(*this, prefix_ + list + ".")));
    rows.back()->give(values, at);
    return *rows.back();
}

std::map<std::string, std::string> Findings::names() const {
    std::map<std::string, std::string> names;
    for (const auto& [name, at] : given_at_)
        names.emplace(prefix_ + name, at);
    for (const auto& [list, rows] : lists_)
        for (const auto& row : rows)
            names.merge(row->names());
    return names;
}

namespace {

/// The wording of the record: words are written as the experiment gave them.
class AsGiven final : public Wording {
  public:
    std::string check_label(const std::string&) const override { return ""; }
    std::string written(const std::string& word) const override { return word; }
};

}  // namespace

std::string Findings::label_of(const std::string& name) const {
    const std::string label = wording_.check_label(prefix_ + name);
    if (label.empty())
        throw UsageError(
            fmt::format("the lesson's page has no {{{{check {0}{1}: …}}}}, but the "
                        "lesson checks {0}{1}",
                        prefix_, name));
    return filled(label, *this, AsGiven(), "the label of the check " + prefix_ + name);
}

void Findings::keep(const std::string& name, MadeCheck made, SourceLine at) {
    given_at_[name] = at.text();
    if (made.compared) record_.checks.push_back(made.check);
    if (!checks_.emplace(name, std::move(made)).second)
        throw std::logic_error(at.text() + " checks " + prefix_ + name + " again");
}

void Findings::equal(const std::string& name, Figure figure, double expected,
                     SourceLine at) {
    keep(name, {Check::equal(label_of(name), figure.value, expected), figure, true}, at);
}

void Findings::at_most(const std::string& name, Figure figure, double bound,
                       SourceLine at) {
    keep(name, {Check::at_most(label_of(name), figure.value, bound), figure, true}, at);
}

void Findings::not_compared(const std::string& name, SourceLine at) {
    keep(name, {Check::equal(label_of(name), 0, 0), {}, false}, at);
}

void Findings::draw(const std::string& name, Draw draw, SourceLine at) {
    given_at_[name] = at.text();
    pictures_[name] = {std::make_shared<const Draw>(std::move(draw)), ""};
}

void Findings::timeline(const std::string& name, const RunReport& report, SourceLine at) {
    const auto kept = std::make_shared<const RunReport>(report);
    draw(
        name, [kept](const std::string& title) { return timeline_chart(*kept, title); },
        at);
}

void Findings::memory(const std::string& name, const RunReport& report, SourceLine at) {
    const auto kept = std::make_shared<const RunReport>(report);
    draw(
        name, [kept](const std::string& title) { return memory_chart(*kept, title); },
        at);
}

void Findings::mesh(const std::string& name, MeshPicture mesh, SourceLine at) {
    draw(
        name,
        [kept = std::move(mesh)](const std::string& title) {
            MeshPicture titled = kept;
            titled.title = title;
            return titled;
        },
        at);
}

namespace {

template <typename Kept>
const Kept* find_in(const std::map<std::string, Kept>& map, const std::string& name) {
    const auto found = map.find(name);
    return found == map.end() ? nullptr : &found->second;
}

}  // namespace

const Value* Findings::value(const std::string& name) const {
    const Value* own = find_in(values_, name);
    return own || !outer_ ? own : outer_->value(name);
}

const MadeCheck* Findings::check(const std::string& name) const {
    const MadeCheck* own = find_in(checks_, name);
    return own || !outer_ ? own : outer_->check(name);
}

const Picture* Findings::picture(const std::string& name) const {
    const Picture* own = find_in(pictures_, name);
    return own || !outer_ ? own : outer_->picture(name);
}

const std::vector<std::unique_ptr<Findings>>* Findings::list(
    const std::string& name) const {
    const auto* own = find_in(lists_, name);
    return own || !outer_ ? own : outer_->list(name);
}

namespace {

constexpr std::string_view kNameBegins =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kNameGoesOn =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";

/// Returns the text that replaces a name; none for a flag or a name without a value. For
/// a check's name, returns its figure; for the name with ".bound" after it, its bound.
std::optional<std::string> text_called(const std::string& name, const Findings& found,
                                       const Wording& wording) {
    constexpr std::string_view kBound = ".bound";
    if (const Value* value = found.value(name)) {
        if (const auto* figure = std::get_if<Figure>(value))
            return text_of(*figure, wording.language());
        if (const auto* word = std::get_if<std::string>(value))
            return wording.written(*word);
        return std::nullopt;
    }
    const bool is_bound = name.ends_with(kBound);
    const MadeCheck* made =
        found.check(is_bound ? name.substr(0, name.size() - kBound.size()) : name);
    if (!made) return std::nullopt;
    Figure figure = made->unit;
    figure.value = is_bound ? made->check.bound : made->check.figure;
    return text_of(figure, wording.language());
}

}  // namespace

std::string filled(std::string_view text, const Findings& found, const Wording& wording,
                   const std::string& place) {
    std::string whole;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t open = std::min(text.find('{', at), text.size());
        whole += text.substr(at, open - at);
        at = open;
        if (at == text.size()) break;
        const std::size_t end =
            std::min(text.find_first_not_of(kNameGoesOn, at + 1), text.size());
        const std::string name(text.substr(at + 1, end - at - 1));
        const bool optional = text.substr(end).starts_with("?}");
        if (name.empty() || kNameBegins.find(name.front()) == kNameBegins.npos ||
            !(optional || text.substr(end).starts_with("}"))) {
            whole += text[at++];
            continue;
        }
        const std::optional<std::string> value = text_called(name, found, wording);
        require(value || optional, "{}: nothing was given the name {}", place, name);
        whole += value.value_or("");
        at = end + (optional ? 2 : 1);
    }
    return whole;
}

}  // namespace lockstep::lessons
