package podstatus

import (
	"fmt"
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// What a kubelet over containerd tells of a container whose command could not be
// started.
const (
	ReasonStart = "StartError"
	CodeStart   = 128
)

var shellCode = regexp.MustCompile(` \(exit code (\d{1,3})\)$`)

// StartError makes end that of a container whose command could not be started, as
// a kubelet over containerd tells it. The code that it had, which is 127 for a
// command that is not there, is kept at the end of the message: ExitCode finds
// it there.
func StartError(end *corev1.ContainerStateTerminated) {
	end.Message += fmt.Sprintf(" (exit code %d)", end.ExitCode)
	end.Reason, end.ExitCode = ReasonStart, CodeStart
}

// commandCode is how a container ended for who runs it as a command: 127 and 126 for a
// command that is not there and one that cannot be executed.
func commandCode(end *corev1.ContainerStateTerminated) int {
	if found := shellCode.FindStringSubmatch(end.Message); end.Reason == ReasonStart && found != nil {
		if code, err := strconv.Atoi(found[1]); err == nil {
			return code
		}
	}
	return int(end.ExitCode)
}
