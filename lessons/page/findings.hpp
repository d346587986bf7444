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

/// A value that a name on a page can stand for.
using Value = std::variant<Figure, std::string, bool>;

/// A name and the value that it stands for.
struct Given {
    std::string name;
    Value value;
};

/// A name that is given a value: "steps"_is = steps, or Called(name) = steps.
class Called {
  public:
    explicit Called(std::string name) : name_(std::move(name)) {}

    Given operator=(Figure figure) const { return {name_, figure}; }
    Given operator=(std::string words) const { return {name_, std::move(words)}; }
    Given operator=(const char* words) const { return {name_, std::string(words)}; }
    Given operator=(bool flag) const { return {name_, flag}; }
    /// A number that is not whole is a Figure.
    Given operator=(double number) const = delete;
    /// A whole number of things.
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

/// A check that an experiment made. `figure` and `bound` are written in one unit.
struct MadeCheck {
    Check check;
    Figure unit;
    bool compared = true;  ///< false if the run has no numbers to compare
};

/// The names that a page explains.
class Wording {
  public:
    virtual ~Wording() = default;
    /// A check's name in the record; empty if the page does not say.
    virtual std::string check_label(const std::string& name) const = 0;
    /// How a word that an experiment gave is written: "halving_doubling" as "halving,
    /// doubling". Most are written as they are.
    virtual std::string written(const std::string& word) const = 0;
    /// The language in which figures are written.
    virtual Language language() const { return Language::english; }
};

/// What a lesson's experiments have found: numbers with units, words, flags, checks and
/// pictures, each under the name by which the page shows it. A name is given once. Rows
/// of a table, and whatever else there are several of, are findings of their own.
class Findings {
  public:
    /// `wording`, the original page's, and `record` outlive it.
    Findings(const Wording& wording, Record& record)
        : wording_(wording), record_(record) {}

    // Each notes the line that gives the name.

    /// Gives one name its value; a list gives several.
    template <typename Single>
    void give(const std::string& name, Single value, SourceLine at = SourceLine::here()) {
        put(Called(name) = std::move(value), at.text());
    }
    void give(std::initializer_list<Given> values, SourceLine at = SourceLine::here());
    /// Gives each name behind a prefix: "alone.time" if they are "alone" and "time".
    void give(const std::string& prefix, std::initializer_list<Given> values,
              SourceLine at = SourceLine::here());

    /// Appends a row to a list, which `{{each NAME}}` in a table goes through.
    Findings& row(const std::string& list, std::initializer_list<Given> values = {},
                  SourceLine at = SourceLine::here());

    /// Checks that a figure is exactly what is expected, and records that.
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
    /// Checks that a figure is at most `bound`; NaN never is.
    void at_most(const std::string& name, Figure figure, double bound,
                 SourceLine at = SourceLine::here());
    void at_most(const std::string& name, double figure, double bound,
                 SourceLine at = SourceLine::here()) {
        at_most(name, Figure::count(figure), bound, at);
    }
    /// Says that there is nothing to check, since this run has no numbers.
    void not_compared(const std::string& name, SourceLine at = SourceLine::here());

    /// A run's timeline, its memory over time, or a schedule's picture.
    void timeline(const std::string& name, const RunReport& report,
                  SourceLine at = SourceLine::here());
    void memory(const std::string& name, const RunReport& report,
                SourceLine at = SourceLine::here());
    void picture(const std::string& name, const Schedule& schedule, const Timing& timing,
                 SourceLine at = SourceLine::here());
    /// A mesh of devices, whose title is the page's:
    ///
    ///     MeshPicture mesh = MeshPicture::of(shape, spec.devices_per_node);
    ///     mesh.labels = …;  // of each rank, what it holds
    ///     found.mesh("who_holds_what", mesh);
    void mesh(const std::string& name, MeshPicture mesh,
              SourceLine at = SourceLine::here());
    /// A picture of what a replica of a service did, whose title is the page's.
    void service(const std::string& name, ServiceTrace trace,
                 SourceLine at = SourceLine::here());

    /// Returns all names that were given, also those of rows, "sizes.devices", and which
    /// lines gave them; of those that a list gave its place there, too: "…:31, value 2".
    std::map<std::string, std::string> names() const;

    /// Those of a row have what stands outside of it, too. Null if it was not given.
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

/// Puts values in place of their names: "{rows} rows" becomes "100 rows". What is in
/// braces and no name stays. Throws UsageError, beginning with `place`, for a name that
/// was not given; one with a question mark behind it may be missing.
std::string filled(std::string_view text, const Findings& found, const Wording& wording,
                   const std::string& place);

}  // namespace lockstep::lessons
