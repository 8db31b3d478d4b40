package report

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/drive"
)

// window is one of a contender that handled messages in a second.
func window(round int, messages int64) Window {
	return Window{
		Round: round,
		Result: drive.Result{Messages: messages, Seconds: 1, Steps: map[string]drive.Percentiles{
			"complete": {Count: 1, P50: 2, P95: 3, P99: 4},
		}},
		ClientCPU: 0.5, ServerCPU: 0.25, DatabaseCPU: 0.25, Statements: float64(messages) / 10, WAL: float64(messages) * 700,
	}
}

func sample() *Report {
	return &Report{Measures: []Measure{{
		Name: Throughput, Title: "Whole cycles <100> bytes", Taken: time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC), Revision: "abc",
		Machine: "2 cores", Postgres: "15", Window: 3, Rounds: 3, Payload: 100, Backlog: 1000,
		Contenders: []Contender{
			{Name: batch1000, Title: "QueueBox batch 1000", Version: "v", Settings: "s", Windows: []Window{window(1, 4000), window(2, 9000), window(3, 5000)}},
			{Name: rivers, Title: "River", Windows: []Window{window(1, 1000), window(2, 1800), window(3, 1000)}},
			{Name: "nats-jetstream", Title: "NATS", Skipped: "nats-server is\nnot | installed"},
		},
	}}}
}

func TestMedian(t *testing.T) {
	require.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	require.InDelta(t, 7, median([]float64{7}), 0)
}

// TestRatiosAreOfOneRound: the second round was a fast moment of the machine for both, and a
// ratio of medians would not know.
func TestRatiosAreOfOneRound(t *testing.T) {
	m := sample().Measure(Throughput)
	r, ok := Compare(m.Contender(batch1000), m.Contender(rivers), Rate)
	require.True(t, ok)
	require.Equal(t, Ratio{Median: 5, Least: 4, Most: 5, Rounds: 3}, r)
	require.Equal(t, "5.00 (4.00–5.00)", r.String())

	_, ok = Compare(m.Contender(batch1000), m.Contender("nats-jetstream"), Rate)
	require.False(t, ok, "a contender that was skipped has no ratio")
	other := &Contender{Windows: []Window{window(7, 1000)}}
	_, ok = Compare(m.Contender(batch1000), other, Rate)
	require.False(t, ok, "windows of different rounds are not compared")
	require.Nil(t, (*Measure)(nil).Contender("x"), "a measure that was not taken has no contenders")
}

func TestFiguresOfAMessage(t *testing.T) {
	w := window(1, 1000)
	require.InDelta(t, 500, ClientCPU(&w), 1e-9)
	require.InDelta(t, 1000, AllCPU(&w), 1e-9)
	require.InDelta(t, 0.1, Statements(&w), 1e-9)
	require.InDelta(t, 700, WAL(&w), 1e-9)
	require.InDelta(t, 3, Percentile("complete", 95)(&w), 0)
	require.InDelta(t, unknown, Percentile("claim", 95)(&w), 0)
	w.ServerCPU = -1
	require.InDelta(t, unknown, ServerCPU(&w), 0, "what could not be read is not nothing")
	require.InDelta(t, unknown, AllCPU(&w), 0)
	c := Contender{Windows: []Window{w}}
	_, ok := c.Median(ServerCPU)
	require.False(t, ok)
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{"0.04": 0.041, "1.50": 1.5, "12.3": 12.34, "123": 123.4, "1,234": 1234, "12,345,678": 12345678} {
		require.Equal(t, want, Number(v, 2))
	}
}

func TestVerdicts(t *testing.T) {
	words := map[string]string{}
	for _, v := range sample().Verdicts() {
		words[v.What] = v.Word()
	}
	require.Equal(t, "met", words["batch 1000, messages/s, against River"])
	require.Equal(t, "**not met**", words["WAL a message, batch 1000, against River"])
	require.Equal(t, "not measured", words["batch 1000 against NATS JetStream, double ack"])
	require.Equal(t, "not measured", words["statements a message, plain unary, 256 callers"])
	require.Empty(t, (&Report{}).Verdicts())
}

// TestVerdictOfOneCaller: the bare statement and the echo call of the same round are added.
func TestVerdictOfOneCaller(t *testing.T) {
	at := func(name string, p50 float64) Contender {
		w := window(1, 10)
		w.Steps = map[string]drive.Percentiles{"complete": {Count: 1, P50: p50}}
		return Contender{Name: name, Windows: []Window{w}}
	}
	judge := func(ours float64) Verdict {
		r := &Report{Measures: []Measure{{Name: Alone, Contenders: []Contender{at("queuebox-unary-1", ours), at("bare-statement", 1.5), at("echo-1", 0.5)}}}}
		return r.alone()
	}
	require.Equal(t, "met", new(judge(2.4)).Word())
	require.Equal(t, "1.20x", judge(2.4).Measured)
	require.Equal(t, "**not met**", new(judge(2.5)).Word())
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	empty, err := Load(path)
	require.NoError(t, err)
	require.Empty(t, empty.Measures)

	r := sample()
	require.NoError(t, r.Save(path))
	again, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, r, again)

	order := []string{Throughput, LatencyOf, Alone}
	r.Put(Measure{Name: Alone}, order)
	r.Put(Measure{Name: LatencyOf}, order)
	r.Put(Measure{Name: Throughput, Title: "newer"}, order)
	require.Len(t, r.Measures, 3)
	require.Equal(t, "newer", r.Measures[0].Title, "a run replaces its measures")
	require.Equal(t, Alone, r.Measures[2].Name)

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = Load(path)
	require.ErrorContains(t, err, path)
}

func TestTable(t *testing.T) {
	var s strings.Builder
	require.NoError(t, sample().Table(&s))
	for _, want := range []string{"Whole cycles", "QueueBox batch 1000", "5,000", "SKIPPED: nats-server", "5.00 (4.00–5.00)x"} {
		require.Contains(t, s.String(), want)
	}
}

func TestMarkdown(t *testing.T) {
	text := sample().Markdown()
	for _, want := range []string{
		"| batch 1000, messages/s, against River | at least 4.00x (stretch 5x) | 5.00 (4.00–5.00)x | met |",
		"![Whole cycles <100> bytes](benchmarks/throughput.svg)",
		"| NATS | skipped: nats-server is not / installed |",
		"| River | 5.00 (4.00–5.00) |",
		"- QueueBox batch 1000 (v): s",
		"2030-01-02",
	} {
		require.Contains(t, text, want)
	}
}

// TestAPageTellsItsConditions: command, load, calls and the true length of windows.
func TestAPageTellsItsConditions(t *testing.T) {
	r := sample()
	m := &r.Measures[0]
	m.Command, m.Warmup = "queuebox-bench --rounds=3", 1
	for i := range m.Contenders {
		for j := range m.Contenders[i].Windows {
			w := &m.Contenders[i].Windows[j]
			w.LoadBefore, w.MachineCPU = float64(i+j)+1, 1.25
		}
	}
	text := r.Markdown()
	for _, want := range []string{
		"by `queuebox-bench --rounds=3`", "windows of 3.0 s after a warm-up of 1.0 s", "load average before a window was 1.00–4.00", "used 0.25 cores",
		"calls behind these", "a figure is the median",
	} {
		require.Contains(t, text, want)
	}
	m.Name, m.Rounds = Published, 2
	require.Contains(t, r.Markdown(), "windows of 1.00 s (each from")
	require.Contains(t, r.Markdown(), "mean of two")
}

// TestQuickJudgesNothing: neither in a table nor beside measures that mean something.
func TestQuickJudgesNothing(t *testing.T) {
	r := sample()
	r.Measures[0].Quick = true
	require.Empty(t, r.Verdicts())
	var s strings.Builder
	require.NoError(t, r.Table(&s))
	require.Contains(t, s.String(), "mean nothing")
	require.NotContains(t, s.String(), "Targets")
	r.Put(Measure{Name: Alone}, []string{Throughput, Alone})
	for _, v := range r.Verdicts() {
		require.Equal(t, "not measured", v.Word(), v.What)
	}
}

// TestLikeForLikeIsNoTarget: it stands beside one and is neither met nor missed.
func TestLikeForLikeIsNoTarget(t *testing.T) {
	r := sample()
	r.Measures[0].Contenders = append(r.Measures[0].Contenders,
		Contender{Name: "queuebox-unary-64", Windows: []Window{window(1, 100)}}, Contender{Name: riverOne, Windows: []Window{window(1, 200)}})
	require.Contains(t, r.Markdown(), "| – like for like: plain unary against River inserting singly, 64 callers each | – | 0.50x | no target |")
}

func TestCellIsOneLine(t *testing.T) {
	require.Equal(t, "a b / c", oneLine("a\n  b | c\n"))
	require.Len(t, []rune(oneLine(strings.Repeat("ü", 500))), 201)
}

func TestPageKeepsWhatIsAround(t *testing.T) {
	page, err := splice("before\n"+markBegin+"\nold\n"+markEnd+"\nafter\n", "new\n")
	require.NoError(t, err)
	require.Equal(t, "before\n"+markBegin+"\n\nnew\n\n"+markEnd+"\nafter\n", page)
	again, err := splice(page, "new\n")
	require.NoError(t, err)
	require.Equal(t, page, again)
	for _, bad := range []string{"", markBegin, markEnd + markBegin} {
		_, err := splice(bad, "new")
		require.ErrorIs(t, err, ErrNoMarkers)
	}
}

func TestChartIsSVG(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, sample().Charts(dir))
	text, err := os.ReadFile(filepath.Join(dir, "throughput.svg"))
	require.NoError(t, err)
	var root struct {
		XMLName xml.Name
		Rects   []struct {
			Width string `xml:"width,attr"`
		} `xml:"rect"`
		Texts []string `xml:"text"`
	}
	require.NoError(t, xml.Unmarshal(text, &root))
	require.Equal(t, "svg", root.XMLName.Local)
	require.Len(t, root.Rects, 3, "a background and one bar for each that ran")
	require.Contains(t, root.Texts, "Whole cycles <100> bytes")
	require.Contains(t, root.Texts, "5,000")
	require.NotEqual(t, root.Rects[1].Width, root.Rects[2].Width)
	require.Empty(t, (&Measure{Name: Throughput}).chart(), "nothing to draw")
}
