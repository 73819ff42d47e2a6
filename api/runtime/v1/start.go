package runtimev1

import (
	"fmt"
	"regexp"
	"strconv"
)

// The reason and exit code of a container with a process that could not be started, as in containerd.
const (
	ReasonStart = "StartError"
	CodeStart   = 128
)

var shellCode = regexp.MustCompile(` \(exit code (\d{1,3})\)$`)

// StartMessage returns the message of such a container. It contains the reason and the code that a shell would
// return: 127 for a missing command, 126 for one that cannot be executed.
func StartMessage(why string, code int) string { return fmt.Sprintf("%s (exit code %d)", why, code) }

// CommandCode returns the exit code of a container that is run as a command. If the process could not be started,
// it is the code in StartMessage.
func CommandCode(reason, message string, code int32) int {
	if found := shellCode.FindStringSubmatch(message); reason == ReasonStart && found != nil {
		if n, err := strconv.Atoi(found[1]); err == nil {
			return n
		}
	}
	return int(code)
}
