// Colours of cells and objects; the same in the map, its legend and the lists of segments.

export const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

export function objectColour(number) {
  const hue = (number * 137.508) % 360; // the golden angle: neighbours are far apart
  return `hsl(${hue} ${isDark() ? "55% 52%" : "62% 58%"})`;
}

// From cold to hot; `share` is 0 to 1.
export function heat(share) {
  const at = Math.max(0, Math.min(1, share));
  return `hsl(${220 - 200 * at} ${isDark() ? 65 : 75}% ${isDark() ? 30 + 30 * at : 82 - 36 * at}%)`;
}

export const nothing = () => (isDark() ? "#21262d" : "#e7eaee");
export const free = () => (isDark() ? "#3d444d" : "#c8d0d9");
export const good = () => (isDark() ? "#23633a" : "#a8dab5");
export const bad = () => (isDark() ? "#ff5d52" : "#d1242f");
export const ink = () => (isDark() ? "#f0f3f6" : "#0a0c10");
