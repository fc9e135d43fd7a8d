"""A page, parsed: its elements, texts and links; markup that does not close is an error."""

from html.parser import HTMLParser

# Elements without an end: of HTML, and of SVG where the page writes <x .../>.
_VOID = {"meta", "br"}


class Page(HTMLParser):
    """elements: (tag, attributes) in order.  texts: of each tag, what stands in elements of it."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self._open, self._titles = [], {}, [], []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts.setdefault(tag, [])
        if tag not in _VOID:
            self._open.append(tag)
            self.texts[tag].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-2:] == ["summary", "b"]:
            self._titles.append(data)
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def of(self, tag, **wanted):
        """The attributes of a tag's elements that have these values."""
        wanted = {name.strip("_"): value for name, value in wanted.items()}
        return [a for t, a in self.elements if t == tag and wanted.items() <= a.items()]

    @property
    def stages(self):
        """(stage, text) of each folded text."""
        return list(zip(self._titles, self.texts["pre"], strict=True))
