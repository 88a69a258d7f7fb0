//! The vocabulary of the hope chart. A name missing here makes the chart fail to load; a name added here does not compile
//! until it is handled.

use crate::governance::statechart::chart::Vocabulary;

/// The vocabulary of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopeVocabulary;

impl Vocabulary for HopeVocabulary {
    type Event = Event;
    type Guard = Guard;
    type Action = Action;
}

/// Defines an enum whose variants have a name in charts and a description.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variant:ident $word:literal $meaning:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $(#[doc = $meaning] $variant,)*
        }

        crate::config_choices! { $name { $($word => $variant),* } }
    };
}

words! {
    /// Events of a piece of work.
    Event {
        Need "need" "The user says what is wanted.",
        Acknowledged "acknowledged" "The need was played back.",
        Answered "answered" "The user answered the questions.",
        NoAnswer "no_answer" "The user did not answer in the time given.",
        SpecScored "spec_scored" "The specification has its score.",
        Yes "yes" "The user agrees.",
        Edits "edits" "The user agrees with changes.",
        Blueprint "blueprint" "The user wants to see steps and samples first.",
        Risk "risk" "The user wants to see what could fail first.",
        Refined "refined" "The edits are worked in.",
        BriefWritten "brief_written" "The brief is written.",
        Extracted "extracted" "Goal, constraints and scope are extracted.",
        AspectsScored "aspects_scored" "Every aspect has its column.",
        PanelHeard "panel_heard" "The panel discussed the trade-offs.",
        ShapeSelected "shape_selected" "A shape is selected.",
        Shaped "shaped" "The shape was announced to the user, with criteria and mustNots.",
        FitScored "fit_scored" "The fit has its score.",
        Decomposed "decomposed" "The work is cut into items.",
        WaveDone "wave_done" "A wave of items has ended.",
        ItemFailed "item_failed" "An item failed.",
        Reviewed "reviewed" "The experts have reviewed the work.",
        Verification "verified" "The verify gate has an outcome.",
        Satisfied "satisfied" "The user is satisfied.",
        NewWork "new_work" "The user's feedback is new work.",
        WrongIntent "wrong_intent" "Something in the program doubts that the intent is right.",
        IntentWithdrawn "intent_withdrawn" "The user says that the intent is wrong.",
        Reshape "reshape" "The shape does not fit the work.",
        MustNotBroken "must_not_broken" "A mustNot was broken.",
        Stalled "stalled" "A stage makes no progress.",
        Cancel "cancel" "The user ends the work.",
        Pause "pause" "The user pauses the work.",
        Resume "resume" "The user takes the work up again.",
        Interrupted "interrupted" "An audit interrupts; raised by the chart.",
        Consult "consult" "A stage asks for expert advice.",
        BlocklistLoaded "blocklist_loaded" "The user's preferences about experts are known.",
        Single "single" "One expert shall answer.",
        Panel "panel" "A panel shall debate.",
        Unblock "unblock" "A blocker shall be diagnosed.",
        ExpertDetected "expert_detected" "The expert is chosen.",
        ProfileLoaded "profile_loaded" "The expert's profile is loaded.",
        ConfidenceScored "confidence_scored" "The confidence in the expert is scored.",
        Advised "advised" "There is advice.",
        ExpertsSelected "experts_selected" "The panel is chosen.",
        Debated "debated" "Every expert has argued.",
        TensionsSurfaced "tensions_surfaced" "The disagreements are mapped.",
        BlockerParsed "blocker_parsed" "Task, error and failed approach are known.",
        Diagnosed "diagnosed" "The blocker is diagnosed.",
        RecommendFailed "recommend_failed" "The recommendation did not help.",
        TypeDetected "type_detected" "The kind of work is known.",
        EngagementChosen "engagement_chosen" "The user chose the engagement.",
        Response "response" "A response is about to be given.",
        Audited "audited" "The silent audit has an outcome.",
        FooterWritten "footer_written" "The response has its footer.",
    }
}

words! {
    /// Guards of the hope chart.
    Guard {
        SpecReady "spec_ready" "The specification has at least 8 of 10 points.",
        SpecLow "spec_low" "The specification has fewer than 5 of 10 points.",
        IntentHeld "intent_held" "An intent is agreed.",
        ShapeHeld "shape_held" "A shape is agreed for the intent.",
        FitBlocked "fit_blocked" "The fit is below 25 of 75 points.",
        ItemsLeft "items_left" "Items of work are left.",
        BlockerFound "blocker_found" "The review found a BLOCKER.",
        GatePassed "gate_passed" "The post-work gate passed.",
        SameErrorTwice "same_error_twice" "The same error occurred at least twice in a row.",
        FailedThreeTimes "failed_three_times" "At least three attempts failed.",
        CriterionFailedFiveTimes "criterion_failed_five_times" "The same criterion failed at least five times.",
        ConfidenceTooLow "confidence_too_low" "The confidence in the expert is below 3 of 9.",
        EngagementKnown "engagement_known" "The engagement was chosen in this session.",
        Autonomous "autonomous" "The engagement is autonomous.",
        AuditBlocks "audit_blocks" "The silent audit found something that must not go on.",
    }
}

words! {
    /// Actions of the hope chart.
    Action {
        AwaitNeed "await_need" "Ask what is wanted.",
        Acknowledge "acknowledge" "Play back task, context, done, stakes and reviews.",
        AskQuestions "ask_questions" "Ask a round of multiple-choice questions.",
        ScoreSpec "score_spec" "Score the five dimensions of the specification.",
        Echo "echo" "Echo the intent in one sentence and wait for YES, EDITS, BLUEPRINT or RISK.",
        Refine "refine" "Work in the edits: best guess, assumptions, one question.",
        WriteBrief "write_brief" "Write the brief.",
        ShowBlueprint "show_blueprint" "Show steps, sample input and sample output.",
        ShowRisks "show_risks" "Show the top three failures.",
        AdoptIntent "adopt_intent" "Store this intent as agreed.",
        ReleaseIntent "release_intent" "Discard the agreed intent.",
        SurfaceDoubt "surface_doubt" "Report the doubt about the intent to the user, as the engagement allows.",
        Assume "assume" "Take the default for what is open and mark it [ASSUMPTION].",
        Remind "remind" "Ask again.",
        ExtractIntent "extract_intent" "Extract goal, constraints and scope.",
        ScoreAspects "score_aspects" "Give each of the eight aspects its column.",
        HearPanel "hear_panel" "Have a panel discuss the trade-offs.",
        SelectShape "select_shape" "Select the shape.",
        AnnounceShape "announce_shape" "Tell the user the shape, its criteria, mustNots and verification.",
        HoldShape "hold_shape" "Store this shape as agreed.",
        ReleaseShape "release_shape" "Discard the agreed shape, if any.",
        ScoreFit "score_fit" "Score the fit.",
        TellBlocked "tell_blocked" "Tell the user that the fit blocks the work.",
        AskApproval "ask_approval" "Ask for the shape's approval: Yes, Edit or Cancel.",
        Decompose "decompose" "Cut the work into items and announce the loop.",
        RunWave "run_wave" "Run the items whose dependencies are resolved.",
        NoteFailure "note_failure" "Note the failure and go on.",
        TripBreaker "trip_breaker" "Stop trying.",
        Review "review" "Have the experts review the work against specification and mustNots.",
        Verify "verify" "Run the verify gate.",
        ShowReview "show_review" "Summarise the journey and ask for feedback.",
        ConcludeDone "conclude_done" "The piece of work is done.",
        ConcludeUnreviewed "conclude_unreviewed" "The piece of work ended without anybody's review.",
        ConcludeCancelled "conclude_cancelled" "The piece of work was cancelled.",
        ConcludeStopped "conclude_stopped" "The piece of work was stopped: a mustNot was broken.",
        ConcludeStuck "conclude_stuck" "The piece of work is stuck and ends.",
        Close "close" "Give the result.",
        TellPaused "tell_paused" "Tell the user that the work is paused.",
        TellLimit "tell_limit" "Tell the user which limit is met.",
        AskDifferently "ask_differently" "Ask in another way.",
        Research "research" "Research what the stage lacks.",
        LoadBlocklist "load_blocklist" "Load the user's preferences about experts.",
        DetectMode "detect_mode" "Tell single, panel and unblock apart.",
        DetectExpert "detect_expert" "Choose the expert.",
        LoadProfile "load_profile" "Load the expert's profile.",
        ScoreConfidence "score_confidence" "Score the confidence in the expert.",
        Generate "generate" "Answer in the expert's voice, with citations.",
        SelectExperts "select_experts" "Choose three to five experts.",
        Debate "debate" "Have each expert argue.",
        SurfaceTensions "surface_tensions" "Map the disagreements.",
        Synthesize "synthesize" "State consensus, trade-off and dissent.",
        ParseBlocker "parse_blocker" "State task, error and failed approach.",
        Diagnose "diagnose" "Have two or three experts diagnose.",
        Recommend "recommend" "Recommend a way out.",
        GiveNoAdvice "give_no_advice" "Return without advice, and say so.",
        DetectType "detect_type" "Tell Build, Debug, Plan and Reflect apart.",
        AskEngagement "ask_engagement" "Ask for the engagement.",
        Audit "audit" "Run the silent audit.",
        WriteFooter "write_footer" "Write the footer.",
    }
}
