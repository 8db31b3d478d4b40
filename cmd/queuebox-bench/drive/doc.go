// Package drive is the load: the clients of the contenders. Each window runs in a process of its
// own, "queuebox-bench drive SPEC", so that no contender's garbage or goroutines reach another's
// window and the processor time of a client is that of its process. The process tells on standard
// output, in lines of JSON, when the measured part begins and what was measured when it ended.
// The programs in peers/node speak the same lines.
package drive
