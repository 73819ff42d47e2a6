package kmod

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
)

// info is the content of a module's .modinfo section.
type info struct {
	depends  []string // names, normalised
	before   []string // soft dependencies to load first, if they exist
	vermagic string
}

// parseInfo reads a module's description, from which depmod generates modules.dep. So a package's modules can be used
// without depmod.
func parseInfo(module []byte) (info, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return info{}, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return info{}, fmt.Errorf("not a kernel module: no .modinfo")
	}
	data, err := section.Data()
	if err != nil {
		return info{}, fmt.Errorf("read .modinfo: %w", err)
	}
	var i info
	for entry := range strings.SplitSeq(string(data), "\x00") {
		key, value, _ := strings.Cut(entry, "=")
		switch key {
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					i.depends = append(i.depends, normalise(name))
				}
			}
		case "softdep":
			i.before = append(i.before, softBefore(value)...)
		case "vermagic":
			i.vermagic, _, _ = strings.Cut(value, " ")
		}
	}
	return i, nil
}

// softBefore returns the names after "pre:" in "pre: a b post: c".
func softBefore(value string) []string {
	var names []string
	before := false
	for _, word := range strings.Fields(value) {
		switch word {
		case "pre:", "post:":
			before = word == "pre:"
		default:
			if before {
				names = append(names, normalise(word))
			}
		}
	}
	return names
}

// normalise unifies the two spellings of a module's name, like the kernel.
func normalise(name string) string { return strings.ReplaceAll(name, "-", "_") }
