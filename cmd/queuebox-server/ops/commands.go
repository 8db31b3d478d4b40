package ops

// Commands are the commands of an operator.
type Commands struct {
	Queues     queuesCmd     `cmd:"" group:"Operators" help:"Queues: list, get, create, update, pause, resume, stats."`
	Messages   messagesCmd   `cmd:"" group:"Operators" help:"Messages: list, get, cancel, revoke."`
	Enqueue    enqueueCmd    `cmd:"" group:"Operators" help:"Enqueue one message, from a flag, a file or standard input."`
	Explain    explainCmd    `cmd:"" group:"Operators" help:"Say why a message is not claimed now."`
	Redrive    redriveCmd    `cmd:"" group:"Operators" help:"Return dead messages to their queue, by filter."`
	Purge      purgeCmd      `cmd:"" group:"Operators" help:"Delete messages for good, by filter; never a claimed one."`
	Watch      watchCmd      `cmd:"" group:"Operators" help:"Show the counts of queues again and again."`
	Completion completionCmd `cmd:"" group:"Operators" help:"Print what makes a shell complete these commands."`
}

type queuesCmd struct {
	List   queuesListCmd   `cmd:"" help:"List all queues with their settings."`
	Get    queuesGetCmd    `cmd:"" help:"Show the settings of a queue."`
	Create queuesCreateCmd `cmd:"" help:"Make a queue. What is not set takes the default of the server, but attempts are without limit then."`
	Update queuesUpdateCmd `cmd:"" help:"Change the settings that are given and leave the others."`
	Pause  queuesPauseCmd  `cmd:"" help:"Stop claims; workers may finish what they hold."`
	Resume queuesResumeCmd `cmd:"" help:"Let claims through again."`
	Stats  queuesStatsCmd  `cmd:"" help:"Count the messages of queues by state."`
}

type messagesCmd struct {
	List   messagesListCmd   `cmd:"" help:"List messages, newest first."`
	Get    messagesGetCmd    `cmd:"" help:"Show one message."`
	Cancel messagesCancelCmd `cmd:"" help:"Cancel messages: at once where nobody holds them, else the worker is asked to stop."`
	Revoke messagesRevokeCmd `cmd:"" help:"Take the claim on a message away from its worker."`
}

// UsageError is about what was asked for, not about what happened.
type UsageError struct{ error }
