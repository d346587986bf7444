#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "decode.hpp"

using namespace lockstep;

// Continuous batching (Yu et al. 2022, Orca, OSDI, section 3), prompts in pieces together
// with decodes (Agrawal et al. 2024, Sarathi-Serve, 2403.02310, section 4), pages and
// preemption (Kwon et al. 2023, PagedAttention, 2309.06180, sections 4.2 and 4.5).

namespace {

/// Plans passes by the rules of the README.
class Batcher : public Batching {
  public:
    explicit Batcher(const Rules& rules);

    void add(const Request& request) override;
    std::vector<Share> next() override;
    std::int64_t free_pages() const override;

  private:
    struct Sequence {
        Request request;
        std::int64_t known = 0;     ///< tokens of the prompt, and generated tokens
        std::int64_t computed = 0;  ///< tokens computed, including the planned pass
        std::int64_t planned = 0;   ///< rows in the pass that is planned
        std::vector<std::int32_t> pages{};

        std::int64_t missing() const { return known - computed; }
        bool decodes() const { return known > request.prompt && missing() == 1; }
    };
    void take_tokens();
    void plan_running(bool decodes);
    void admit();
    bool plan(Sequence& sequence);
    std::int64_t pages_for(std::int64_t tokens) const;
    void send_back_youngest();
    void give_back(Sequence& sequence);

    Rules rules_;
    std::vector<std::int32_t> free_;
    std::deque<Sequence> waiting_;
    std::deque<Sequence> running_;  ///< the oldest request first
    std::int64_t rows_left_ = 0;    ///< free rows of the pass that is planned
};

Batcher::Batcher(const Rules& rules) : rules_(rules) {
    for (std::int64_t page = rules.pages; page-- > 0;)
        free_.push_back(static_cast<std::int32_t>(page));
}

void Batcher::add(const Request& request) {
    waiting_.push_back({request, request.prompt});
}

std::vector<Share> Batcher::next() {
    take_tokens();
    rows_left_ = rules_.rows;
    plan_running(/*decodes=*/true);
    plan_running(/*decodes=*/false);
    admit();

    std::vector<Share> pass;
    for (const Sequence& sequence : running_)
        if (sequence.planned > 0)
            pass.push_back({sequence.request.id,
                            {sequence.computed - sequence.planned, sequence.planned,
                             sequence.pages}});
    return pass;
}

std::int64_t Batcher::free_pages() const {
    return std::ssize(free_);
}

/// Is called when the previous pass has been computed. If all tokens of a sequence are
/// computed, it gets one more token. If it then has all of its tokens, it ends.
void Batcher::take_tokens() {
    std::deque<Sequence> going_on;
    for (Sequence& sequence : running_) {
        if (std::exchange(sequence.planned, 0) > 0 && sequence.missing() == 0)
            ++sequence.known;
        if (sequence.known == sequence.request.prompt + sequence.request.output)
            give_back(sequence);
        else
            going_on.push_back(std::move(sequence));
    }
    running_ = std::move(going_on);
}

/// Plans sequences that decode, or the prompts of other sequences, the oldest first. If
/// no page is free, sends back the youngest sequence.
void Batcher::plan_running(bool decodes) {
    for (std::size_t i = 0; i < running_.size();) {
        Sequence& sequence = running_[i];
        if (sequence.planned > 0 || sequence.decodes() != decodes || rows_left_ == 0 ||
            plan(sequence))
            ++i;
        else
            send_back_youngest();
    }
}

/// Waiting requests begin, in their order, while there is room for all of their tokens.
void Batcher::admit() {
    while (!waiting_.empty() && rows_left_ > 0 &&
           std::ssize(running_) < rules_.sequences &&
           pages_for(waiting_.front().known) <= std::ssize(free_)) {
        running_.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
        plan(running_.back());
    }
}

/// Adds the sequence's next rows to the pass, as many as fit. Returns false if there are
/// no pages for these rows.
bool Batcher::plan(Sequence& sequence) {
    const std::int64_t rows = std::min(sequence.missing(), rows_left_);
    const std::int64_t more =
        pages_for(sequence.computed + rows) - std::ssize(sequence.pages);
    if (more > std::ssize(free_)) return false;
    for (std::int64_t i = 0; i < more; ++i) {
        sequence.pages.push_back(free_.back());
        free_.pop_back();
    }
    sequence.planned = rows;
    sequence.computed += rows;
    rows_left_ -= rows;
    return true;
}

std::int64_t Batcher::pages_for(std::int64_t tokens) const {
    return (tokens + rules_.page_rows - 1) / rules_.page_rows;
}

/// The request's rows leave the pass. Its tokens will be computed again.
void Batcher::send_back_youngest() {
    Sequence youngest = std::move(running_.back());
    running_.pop_back();
    rows_left_ += std::exchange(youngest.planned, 0);
    youngest.computed = 0;
    give_back(youngest);
    waiting_.push_front(std::move(youngest));
}

void Batcher::give_back(Sequence& sequence) {
    free_.insert(free_.end(), sequence.pages.begin(), sequence.pages.end());
    sequence.pages.clear();
}

}  // namespace

std::unique_ptr<Batching> make_batcher(const Rules& rules) {
    return std::make_unique<Batcher>(rules);
}
