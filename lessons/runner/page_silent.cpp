#include "lessons/runner/page_silent.hpp"

#include "lessons/runner/progress.hpp"
#include "lessons/runner/quote.hpp"

namespace lockstep::lessons {

void SilentPage::quote(const std::string& anchor) {
    find_quote(anchor);
}

std::unique_ptr<Progress> SilentPage::progress(const std::string& what,
                                               std::int64_t total) {
    return show_progress(what, total);
}

}  // namespace lockstep::lessons
