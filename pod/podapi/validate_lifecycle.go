package podapi

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func (c checker) lifecycle(lifecycle *corev1.Lifecycle, at string, spec *corev1.PodSpec) {
	if lifecycle == nil {
		return
	}
	c.handler(lifecycle.PostStart, at+"postStart", spec)
	c.handler(lifecycle.PreStop, at+"preStop", spec)
	if signal := lifecycle.StopSignal; signal != nil {
		if spec.OS == nil || spec.OS.Name == "" {
			c.fault(at+"stopSignal", "can be set only together with spec.os.name")
		}
		if !isSignal(string(*signal)) {
			c.fault(at+"stopSignal", "%q is not a signal", *signal)
		}
	}
}

// handler checks a hook: it must have one action.
func (c checker) handler(handler *corev1.LifecycleHandler, at string, spec *corev1.PodSpec) {
	if handler == nil {
		return
	}
	handlers := 0
	for _, set := range []bool{handler.Exec != nil, handler.HTTPGet != nil, handler.TCPSocket != nil, handler.Sleep != nil} {
		if set {
			handlers++
		}
	}
	c.oneHandler(handlers, at)
	if handler.Exec != nil {
		c.exec(handler.Exec, at+".exec")
	}
	if handler.HTTPGet != nil {
		c.httpGet(handler.HTTPGet, at+".httpGet")
	}
	if handler.TCPSocket != nil {
		c.portOrName(handler.TCPSocket.Port, at+".tcpSocket.port")
	}
	if sleep, grace := handler.Sleep, *spec.TerminationGracePeriodSeconds; sleep != nil && (sleep.Seconds < 0 || sleep.Seconds > grace) {
		c.fault(at+".sleep.seconds", "%d is not between 0 and the grace period of %d", sleep.Seconds, grace)
	}
}

// signals are the API's signal names other than real-time signals.
var signals = []string{
	"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT",
	"SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM",
	"SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
	"SIGRTMIN", "SIGRTMAX",
}

// isSignal accepts the names in signals, SIGRTMIN+1 to SIGRTMIN+15 and SIGRTMAX-1 to SIGRTMAX-14.
func isSignal(name string) bool {
	for base, last := range map[string]int{"SIGRTMIN+": 15, "SIGRTMAX-": 14} {
		if number, found := strings.CutPrefix(name, base); found {
			n, err := strconv.Atoi(number)
			return err == nil && n >= 1 && n <= last && number == strconv.Itoa(n)
		}
	}
	return slices.Contains(signals, name)
}
