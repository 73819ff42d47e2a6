package container

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
)

// parseMount parses the value of --mount, a line of CSV as in podman and docker.
func parseMount(text string) (m mounted, err error) {
	fields := csv.NewReader(strings.NewReader(text))
	list, err := fields.Read()
	if err == nil {
		if _, more := fields.Read(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one line")
		}
	}
	if err != nil {
		return m, fmt.Errorf("%w: separate the fields by commas, and put one with a comma in quotes", err)
	}
	kind, source, memory := "volume", "", emptyDir{Medium: "Memory"}
	for _, field := range list {
		key, value, given := strings.Cut(field, "=")
		yes := value != "false" && value != "0"
		switch key {
		case "type":
			kind = value
		case "source", "src":
			source = value
		case "target", "dst", "destination":
			m.at = value
		case "readonly", "ro":
			m.readOnly = yes
		case "rw":
			m.readOnly = !yes
		case "volume-nocopy":
			m.noCopy = yes
		case "tmpfs-size":
			err = memory.set("size=" + value)
		case "tmpfs-mode":
			err = memory.set("mode=" + value)
		case "cache":
			err = m.setCache(value)
		case "bind-propagation":
			if !slices.Contains(unchanging, value) {
				err = fmt.Errorf("bind-propagation=%s: a pod's mounts are private", value)
			}
		default:
			if given || !m.setOption(key) {
				err = fmt.Errorf("unknown field %q", key)
			}
		}
		if err != nil {
			return m, err
		}
	}
	switch {
	case m.at == "":
		return m, errors.New("the target is missing")
	case kind == "bind":
		m.from.HostPath, err = hostPathOf(source)
	case kind == "tmpfs" && source == "":
		m.from.EmptyDir = &memory
	case kind == "volume" && source == "":
		m.from.EmptyDir = &emptyDir{}
	case kind == "volume" && volumeName.MatchString(source):
		m.from.Claim = &claim{source}
	case kind == "volume":
		err = fmt.Errorf("source %q is not the name of a volume", source)
	default:
		err = fmt.Errorf("type %q: must be bind, volume or tmpfs", kind)
	}
	if err == nil && m.noCopy && m.from.Claim == nil {
		err = errors.New("volume-nocopy is only for named volumes")
	}
	if err == nil && m.cache != "" && m.from.EmptyDir != nil {
		err = errors.New("cache is only for directories of the host and shared volumes")
	}
	return m, err
}

// parseTmpfs parses the value of --tmpfs. As in podman, the mount is noexec, nosuid and nodev unless the options
// say exec, suid or dev.
func parseTmpfs(text string) (m mounted, err error) {
	at, options, _ := strings.Cut(text, ":")
	m.at, m.from.EmptyDir = at, &emptyDir{Medium: "Memory"}
	given := strings.Split(options, ",")
	for _, option := range given {
		switch {
		case option == "tmpcopyup":
			return m, errors.New("tmpcopyup: not possible, the directory starts empty; use a volume, which starts with the image's files")
		case m.setOption(option), slices.Contains([]string{"exec", "suid", "dev", "notmpcopyup", ""}, option):
		default:
			if err := m.from.EmptyDir.set(option); err != nil {
				return m, err
			}
		}
	}
	for _, option := range []string{"exec", "suid", "dev"} {
		if !slices.Contains(given, option) {
			m.setOption("no" + option)
		}
	}
	return m, nil
}

// parseShm parses the value of --shm-size.
func parseShm(text string) (mounted, error) { return parseTmpfs("/dev/shm:size=" + text) }

// set applies one option of a directory in memory.
func (d *emptyDir) set(option string) (err error) {
	switch key, value, _ := strings.Cut(option, "="); key {
	case "size":
		d.SizeLimit, err = text.Quantity(value)
		return err
	case "mode":
		mode, err := strconv.ParseUint(value, 8, 12)
		if err != nil {
			return fmt.Errorf("mode=%s: must be an octal number, such as 1777", value)
		}
		d.Mode = new(int32(mode))
		return nil
	}
	return fmt.Errorf("option %q: use size=, mode=, ro, noexec, nosuid or nodev", option)
}
