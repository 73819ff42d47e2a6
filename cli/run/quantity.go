package run

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// memory is a size as podman writes it: a number of bytes, or of units of 1024 with
// b, k, m or g after it. A Pod's own form (256Mi) is taken as it is.
var memory = regexp.MustCompile(`^([0-9]+)([bkmg]?)b?$`)

// bytesOf makes a Pod's quantity of --memory.
func bytesOf(text string) (string, error) {
	if strings.HasSuffix(text, "i") {
		return text, nil
	}
	m := memory.FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return "", fmt.Errorf("--memory %q: give a number with k, m or g, as 512m", text)
	}
	unit := map[string]string{"": "", "b": "", "k": "Ki", "m": "Mi", "g": "Gi"}[m[2]]
	return m[1] + unit, nil
}

// cpusOf makes a Pod's quantity of --cpus.
func cpusOf(text string) (string, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0.001 && n <= 1024) {
		return "", fmt.Errorf("--cpus %q: give a number of processors, as 1.5", text)
	}
	return strconv.Itoa(int(n*1000+0.5)) + "m", nil
}
