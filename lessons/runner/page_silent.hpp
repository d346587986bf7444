#pragma once

#include "lessons/runner/page.hpp"

namespace lockstep::lessons {

/// Shows nothing and records checks: for --json, and for steps that run only because a
/// later one needs them.
class SilentPage : public Page {
  public:
    explicit SilentPage(Record& record) : record_(record) {}

    void text(const std::string&) override {}
    void verbatim(const std::string&) override {}
    void table(const Table&) override {}
    /// Throws as find_quote does.
    void quote(const std::string& anchor) override;
    void timeline(const std::string&, const RunReport&) override {}
    void predict(const std::string&, double, const std::string&,
                 const std::string&) override {}
    void check(const Check& check) override { record_.checks.push_back(check); }
    std::unique_ptr<Progress> progress(const std::string& what,
                                       std::int64_t total) override;

  private:
    Record& record_;
};

}  // namespace lockstep::lessons
