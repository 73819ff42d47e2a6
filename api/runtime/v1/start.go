package runtimev1

import (
	"fmt"
	"regexp"
	"strconv"
)

// What a CRI runtime tells of a container whose process could not be started, as
// containerd does.
const (
	ReasonStart = "StartError"
	CodeStart   = 128
)

var shellCode = regexp.MustCompile(` \(exit code (\d{1,3})\)$`)

// StartMessage is such a container's message: why, and the code that a shell would give,
// which is 127 for a command that is not there and 126 for one that cannot be executed.
func StartMessage(why string, code int) string { return fmt.Sprintf("%s (exit code %d)", why, code) }

// CommandCode is how a container ended for who runs it as a command: the code of
// StartMessage where the process could not be started.
func CommandCode(reason, message string, code int32) int {
	if found := shellCode.FindStringSubmatch(message); reason == ReasonStart && found != nil {
		if n, err := strconv.Atoi(found[1]); err == nil {
			return n
		}
	}
	return int(code)
}
