#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/11_inference/serving_runs.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson's experiments.
class InferenceLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    InferenceLesson(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    void generate(Findings& found);
    void time(Findings& found);
    void cache(Findings& found);
    void sharding(Findings& found);
    void exchange(Findings& found);
    void batching(Findings& found);
    void pages(Findings& found);
    void pieces(Findings& found);
    void apart(Findings& found);
    void speculation(Findings& found);
    void hangs(Findings& found);

    /// The GPT that this lesson trains; the first who asks waits for it.
    const TrainedGpt& trained();
    TrainedGpt train(const std::string& variant, const GptTask& task);
    void compare_writing(Findings& found, const RunReport& alone, const RunReport& many);
    /// A prompt of the text: so many characters from where a sequence begins.
    std::vector<std::int32_t> prompt(std::int64_t sequence, std::int64_t tokens) const;
    /// The request that is answered with a cache and without.
    Request written_request() const;
    std::string text_of(const std::vector<std::int32_t>& tokens) const;
    std::vector<Request> small_requests() const;
    std::vector<Request> common_requests() const;
    ServiceOptions small_service() const;
    /// Requests whose tokens are others than those that each has alone.
    std::int64_t other_tokens(const ServiceRun& run,
                              const std::vector<Request>& requests);
    /// Makes devices for what does not depend on the backend: virtual ones, of this
    /// process.
    std::unique_ptr<Cluster> virtual_devices(int ranks, bool trace = false) const;

    int ranks_;
    std::shared_ptr<const GptTask> task_;
    std::optional<TrainedGpt> trained_;
    std::vector<double> losses_;
};

/// The lesson `inference`: from a prompt to tokens, for many users at once.
LessonEntry inference_lesson();

}  // namespace lockstep::lessons
