#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/page/figure.hpp"
#include "lessons/page/language.hpp"
#include "src/core/source_line.hpp"
#include "src/report/record.hpp"

namespace lockstep {
struct Schedule;
struct ServiceTrace;
struct Timing;
}  // namespace lockstep

namespace lockstep::lessons {

/// A value for a name on a page.
using Value = std::variant<Figure, std::string, bool>;

/// A name and its value.
struct Given {
    std::string name;
    Value value;
};

/// A name to which a value is assigned: "steps"_is = steps, or Called(name) = steps.
class Called {
  public:
    explicit Called(std::string name) : name_(std::move(name)) {}

    Given operator=(Figure figure) const { return {name_, figure}; }
    Given operator=(std::string words) const { return {name_, std::move(words)}; }
    Given operator=(const char* words) const { return {name_, std::string(words)}; }
    Given operator=(bool flag) const { return {name_, flag}; }
    /// A number that is not an integer must be given as a Figure.
    Given operator=(double number) const = delete;
    /// An integer is a count.
    template <typename Integer>
    requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>) Given
    operator=(Integer number) const {
        return {name_, Figure::count(number)};
    }

  private:
    std::string name_;
};

inline Called operator""_is(const char* name, std::size_t size) {
    return Called(std::string(name, size));
}

/// A check that an experiment made. `figure` and `bound` are written in the same unit.
struct MadeCheck {
    Check check;
    Figure unit;
    bool compared = true;  ///< false if the run computes only shapes
};

/// How a page writes the names and words of an experiment.
class Wording {
  public:
    virtual ~Wording() = default;
    /// Returns a check's name in the record; empty if the page gives none.
    virtual std::string check_label(const std::string& name) const = 0;
    /// Returns how a word from an experiment is written: "halving_doubling" as "halving,
    /// doubling". Most are written unchanged.
    virtual std::string written(const std::string& word) const = 0;
    /// Returns the language in which figures are written.
    virtual Language language() const { return Language::english; }
};

/// The results of a lesson's experiments: numbers with units, words, flags, checks and
/// pictures, each under its name on the page. Each name is given once. Each row of a
/// table, or of another list, is a Findings object of its own.
class Findings {
  public:
    /// `wording` is the English page. `wording` and `record` must outlive this object.
    Findings(const Wording& wording, Record& record)
        : wording_(wording), record_(record) {}

    // Each function stores the line of code that calls it.

    /// Gives one name its value, or several names their values.
    template <typename Single>
    void give(const std::string& name, Single value, SourceLine at = SourceLine::here()) {
        put(Called(name) = std::move(value), at.text());
    }
    void give(std::initializer_list<Given> values, SourceLine at = SourceLine::here());
    /// Gives values to names with a prefix: "alone" and "time" become "alone.time".
    void give(const std::string& prefix, std::initializer_list<Given> values,
              SourceLine at = SourceLine::here());

    /// Appends a row to a list. On a page, `{{each NAME}}` in a table shows the list.
    Findings& row(const std::string& list, std::initializer_list<Given> values = {},
                  SourceLine at = SourceLine::here());

    /// Checks that a figure is exactly as expected, and records the check.
    void equal(const std::string& name, Figure figure, double expected,
               SourceLine at = SourceLine::here());
    template <typename Integer>
    requires std::is_integral_v<Integer>
    void equal(const std::string& name, Figure figure, Integer expected,
               SourceLine at = SourceLine::here()) {
        equal(name, figure, static_cast<double>(expected), at);
    }
    template <typename Number, typename Expected>
    requires(std::is_arithmetic_v<Number>&& std::is_arithmetic_v<Expected>) void equal(
        const std::string& name, Number figure, Expected expected,
        SourceLine at = SourceLine::here()) {
        equal(name, Figure::count(figure), static_cast<double>(expected), at);
    }
    /// Checks that a figure is at most `bound`. The check fails for NaN.
    void at_most(const std::string& name, Figure figure, double bound,
                 SourceLine at = SourceLine::here());
    void at_most(const std::string& name, double figure, double bound,
                 SourceLine at = SourceLine::here()) {
        at_most(name, Figure::count(figure), bound, at);
    }
    /// Notes that nothing is checked, because this run computes only shapes.
    void not_compared(const std::string& name, SourceLine at = SourceLine::here());

    /// Pictures of a run's timeline, of its memory over time, and of a schedule.
    void timeline(const std::string& name, const RunReport& report,
                  SourceLine at = SourceLine::here());
    void memory(const std::string& name, const RunReport& report,
                SourceLine at = SourceLine::here());
    void picture(const std::string& name, const Schedule& schedule, const Timing& timing,
                 SourceLine at = SourceLine::here());
    /// A picture of a mesh of devices; the page has its title:
    ///
    ///     MeshPicture mesh = MeshPicture::of(shape, spec.devices_per_node);
    ///     mesh.labels = …;  // what each rank holds
    ///     found.mesh("who_holds_what", mesh);
    void mesh(const std::string& name, MeshPicture mesh,
              SourceLine at = SourceLine::here());
    /// A picture of the passes of a service's replica; the page has its title.
    void service(const std::string& name, ServiceTrace trace,
                 SourceLine at = SourceLine::here());

    /// Returns all names that were given, including names in rows ("sizes.devices"), with
    /// the line of code that gave each name. For a name from a list, the name's place in
    /// the list follows: "…:31, value 2".
    std::map<std::string, std::string> names() const;

    /// Each function looks in this row, then outside of it; null if both lack the name.
    const Value* value(const std::string& name) const;
    const MadeCheck* check(const std::string& name) const;
    const Picture* picture(const std::string& name) const;
    const std::vector<std::unique_ptr<Findings>>* list(const std::string& name) const;

  private:
    Findings(const Findings& outer, std::string prefix)
        : wording_(outer.wording_),
          record_(outer.record_),
          outer_(&outer),
          prefix_(std::move(prefix)) {}

    void put(Given given, const std::string& at);
    void keep(const std::string& name, MadeCheck made, SourceLine at);
    void draw(const std::string& name, Draw draw, SourceLine at);
    std::string label_of(const std::string& name) const;

    const Wording& wording_;
    Record& record_;
    const Findings* outer_ = nullptr;
    std::string prefix_;  ///< of a row: "sizes."
    std::map<std::string, std::string> given_at_;
    std::map<std::string, Value> values_;
    std::map<std::string, MadeCheck> checks_;
    std::map<std::string, Picture> pictures_;
    std::map<std::string, std::vector<std::unique_ptr<Findings>>> lists_;
};

/// Replaces names by their values: "{rows} rows" becomes "100 rows". Other text in braces
/// stays. Throws UsageError, beginning with `place`, if a name has no value. A name with
/// a question mark after it may have no value.
std::string filled(std::string_view text, const Findings& found, const Wording& wording,
                   const std::string& place);

}  // namespace lockstep::lessons
